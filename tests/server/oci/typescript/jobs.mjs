// Create, run, watch and delete a job with OCI's SDK for TypeScript.
// node jobs.mjs MODULES ENDPOINT CONFIG COMPARTMENT
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";

const [modules, endpoint, config, compartmentId] = process.argv.slice(2);
const require = createRequire(join(modules, "x"));
const common = require("oci-common");
const { DataScienceClient } = require("oci-datascience");

const authenticationDetailsProvider = new common.ConfigFileAuthenticationDetailsProvider(config);
const client = new DataScienceClient({ authenticationDetailsProvider });
client.endpoint = endpoint;
const seen = {};

const { project } = await client.createProject({
  createProjectDetails: { compartmentId, displayName: "typescript" },
});
const { job } = await client.createJob({
  createJobDetails: {
    compartmentId,
    projectId: project.id,
    displayName: "typescript",
    jobConfigurationDetails: {
      jobType: "DEFAULT",
      environmentVariables: { WORD: "kite" },
      commandLineArguments: "--steps 3 'two words'",
    },
    jobInfrastructureConfigurationDetails: {
      jobInfrastructureType: "ME_STANDALONE",
      shapeName: "VM.Standard.E4.Flex",
      blockStorageSizeInGBs: 50,
      jobShapeConfigDetails: { ocpus: 1, memoryInGBs: 1 },
    },
  },
});
seen.shape = job.jobInfrastructureConfigurationDetails.shapeName;
seen.disk = job.jobInfrastructureConfigurationDetails.blockStorageSizeInGBs;
const program = `
import os, sys
sys.exit(0 if (os.environ["WORD"], sys.argv[1:]) == ("kite", ["--steps", "3", "two words"]) else 9)
`;
await client.createJobArtifact({
  jobId: job.id,
  jobArtifact: program,
  contentLength: program.length,
  contentDisposition: "attachment; filename=main.py",
});
seen.file = (await client.headJobArtifact({ jobId: job.id })).contentDisposition;

const start = (overrides = {}) =>
  client.createJobRun({
    createJobRunDetails: { compartmentId, projectId: project.id, jobId: job.id, ...overrides },
  });
const until = async (id, ...states) => {
  for (;;) {
    const { jobRun } = await client.getJobRun({ jobRunId: id });
    if (states.includes(jobRun.lifecycleState)) return jobRun;
    await setTimeout(50);
  }
};
const ended = ["SUCCEEDED", "FAILED", "CANCELED"];
const { jobRun } = await start();
seen.state = (await until(jobRun.id, ...ended)).lifecycleState;
const wrong = await start({
  jobConfigurationOverrideDetails: {
    jobType: "DEFAULT",
    environmentVariables: { WORD: "boat" },
  },
});
seen.details = (await until(wrong.jobRun.id, ...ended)).lifecycleDetails;

let count = 0;
for await (const one of client.listAllJobRuns({ compartmentId, jobId: job.id, limit: 1 })) {
  count += one.jobId === job.id ? 1 : 0;
}
seen.count = count;
try {
  await client.getJob({ jobId: `${job.id}x` });
} catch (error) {
  seen.error = [error.statusCode, error.serviceCode];
}
seen.request = (await client.deleteJob({ jobId: job.id, deleteRelatedJobRuns: true }))
  .opcWorkRequestId;
seen.deleted = (await until(jobRun.id, "DELETED")).lifecycleState;
console.log(JSON.stringify(seen));
