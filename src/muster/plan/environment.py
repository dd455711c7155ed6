"""The environment of a node, in OCI's words and in Muster's own.

OCI: "Job Environment Variables" and the additions for distributed runs. What the service provides
wins over what the owner set under the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from muster.node.roster import hostfile_beside
from muster.plan.model import GitPlan, NodePlan, RunPlan

#: The one tenancy, compartment and project a machine of one's own has.
LOCAL_TENANCY = "ocid1.tenancy.muster.local..this-machine"
LOCAL_COMPARTMENT = "ocid1.compartment.muster.local..this-machine"
LOCAL_PROJECT = "ocid1.datascienceproject.muster.local..this-machine"


#: What this machine's programs are found with, and speak a language: in a container, the image's.
_FINDING = frozenset(
    (
        *("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "SHELL"),
        *("LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME"),
    )
)


def ocid(kind: str, identifier: str) -> str:
    """An identifier in the form OCI's clients look into (its second segment tells the kind)."""
    return f"ocid1.{kind}.muster.local..{identifier}"


def node_environment(plan: RunPlan, node: NodePlan, cluster_file: str) -> dict[str, str]:
    """What every process of `node` is told, whatever the framework."""
    group = plan.group(node.group)
    env = {
        "TENANCY_OCID": LOCAL_TENANCY,
        "PROJECT_OCID": LOCAL_PROJECT,
        "PROJECT_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "JOB_OCID": ocid("datasciencejob", plan.job_id),
        "JOB_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "JOB_RUN_OCID": ocid("datasciencejobrun", plan.run_id),
        "JOB_RUN_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "FQDN": node.fqdn,
        "NODE_RANK": str(node.rank),
        "NODE_GROUP_NAME": node.group,
        "INITIAL_CLUSTER_SIZE": str(plan.policy.initial_size),
        "NODE_COUNT": str(plan.policy.initial_size),
        "CLUSTER_NODES_METADATA_FILE": cluster_file,
        "OCI__MAIN_IP": plan.nodes[0].address,  # ADS
        "MUSTER_HOSTFILE": hostfile_beside(cluster_file),
        "MUSTER_RUN_ID": plan.run_id,
        "MUSTER_RUN_NAME": plan.run_name,
        "MUSTER_JOB_NAME": plan.job_name,
        "MUSTER_NODE_ID": node.node_id,
        "MUSTER_NODE_ADDRESS": node.address,
        "MUSTER_GROUP": node.group,
        "MUSTER_REPLICA": str(node.replica),
        "MUSTER_INDEX": str(node.index),
    }
    if plan.artifact is not None:
        env["JOB_ARTIFACT_FILE_NAME"] = plan.artifact.file_name
        entrypoint = group.entrypoint or plan.artifact.entrypoint
        if entrypoint is not None:
            env["JOB_RUN_ENTRYPOINT"] = entrypoint
        if plan.artifact.exclude_tags:
            env["NOTEBOOK_EXCLUDE_TAGS"] = json.dumps(plan.artifact.exclude_tags)  # ADS
        if plan.artifact.git is not None:
            env |= _git_environment(plan.artifact.git)
    for mount in group.mounts:
        env[mount.variable] = mount.path
    if plan.clean_env:
        return {name: value for name, value in env.items() if name.startswith("MUSTER_")}
    return env


def submitted(plan: RunPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """What nodes start from: the submitter's environment, less the secret the code was fetched
    with."""
    git = plan.artifact.git if plan.artifact else None
    secret = git.token_env if git else None
    return {name: value for name, value in environ.items() if name != secret}


def inherited(plan: RunPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """What programs get of that."""
    given = submitted(plan, environ)
    if not plan.clean_env:
        return given
    return {k: v for k, v in given.items() if k in _FINDING or k.startswith("LC_")}


def _git_environment(git: GitPlan) -> dict[str, str]:
    told = {
        "MUSTER_GIT_URL": git.url,
        "MUSTER_GIT_COMMIT": git.commit,
        "MUSTER_GIT_BRANCH": git.branch,
        "MUSTER_GIT_PATH": git.path,
    }
    return {name: value for name, value in told.items() if value is not None}
