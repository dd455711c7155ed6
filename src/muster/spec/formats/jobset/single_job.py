"""A Job (`batch/v1`), as the JobSet of this one Job: its names, and its places in the file.

`plain_job` has the fields of its manifest.
"""

from __future__ import annotations

from muster.spec.formats.jobset.kubernetes import Job
from muster.spec.formats.jobset.model import JobSet

API_VERSION = "batch/v1"
CONTROLLER = "kubernetes.io/job-controller"
JOB_NAME_KEYS = ("batch.kubernetes.io/job-name", "job-name")
JOB_UID_KEYS = ("batch.kubernetes.io/controller-uid", "controller-uid")

#: Start of a path in the JobSet -> in the Job. The first that fits applies.
_PLACES = {
    "spec.replicatedJobs[0].template.": "",
    "spec.replicatedJobs[0].name": "metadata.name",
    "spec.replicatedJobs[0]": "spec",
    "spec.replicatedJobs": "spec",
    "spec.network.subdomain": "spec.template.spec.subdomain",
}
#: The characters of the name in host names of NonIndexed Jobs. Kubernetes shortens it as well.
_MAX_PREFIX = 52


class SingleJob(JobSet, frozen=True, kw_only=True):
    """A Job, as a JobSet whose only replicated Job has it."""

    @property
    def job(self) -> Job:
        """The Job."""
        return self.spec.replicated_jobs[0].template.spec

    def job_name(self, rj: str, job: str) -> str:
        return self.name

    def hostname(self, rj: str, job: str, index: str) -> str:
        """Kubernetes: <job>-<index> in an Indexed Job. Others have pods with random names, and may
        have dots in their own."""
        name = self.name
        if self.job.completion_mode != "Indexed":
            name = name.replace(".", "-")[:_MAX_PREFIX].rstrip("-")
        return f"{name}-{index}"

    def path_in_file(self, path: str) -> str:
        for place, own in _PLACES.items():
            if path.startswith(place):
                return own + path.removeprefix(place)
        return path


def path_in_jobset(path: str) -> str:
    """The path in a `SingleJob` of a place in the file."""
    place = path.partition(".")[0]
    return f"spec.replicatedJobs[0].template.{path}" if place == "spec" else path
