"""The environment variables of a node's programs: where each value comes from, and which one wins.

`environments` is the one place that decides. The engine passes the values that it knows when a node
starts; `muster explain` passes descriptions of them (`describe.environment`). Pure.

OCI: "Job Environment Variables" and the additions for distributed runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import PurePosixPath
from typing import NamedTuple

from msgspec import Struct

from muster.node.error_file import VARIABLE as ERROR_FILE
from muster.node.roster import VARIABLE as CLUSTER_FILE
from muster.node.roster import hostfile_beside
from muster.plan.model import GitPlan, GroupPlan, NodePlan, RunPlan
from muster.spec.oci_variables import ENTRYPOINT
from muster.spec.ocids import ocid

#: The one tenancy, compartment and project of a machine that is not in OCI.
LOCAL_TENANCY = "ocid1.tenancy.muster.local..this-machine"
LOCAL_COMPARTMENT = "ocid1.compartment.muster.local..this-machine"
LOCAL_PROJECT = "ocid1.datascienceproject.muster.local..this-machine"

#: Variables by which programs of this machine are found, or which set its language. In a container
#: they come from the image, so nodes get them although `clean_env` is set.
_KEPT_BY_CLEAN_ENV = frozenset(
    (
        *("PATH", "LD_LIBRARY_PATH", "HOME", "USER", "LOGNAME", "SHELL"),
        *("LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "JAVA_HOME"),
    )
)
#: OCI: a job run of one node is of no cluster, and what its job says of one is the job's: programs
#: of several job runs find each other by these.
_OF_A_CLUSTER = frozenset(
    (
        *("NODE_RANK", "NODE_COUNT", "NODE_GROUP_NAME", "INITIAL_CLUSTER_SIZE", CLUSTER_FILE),
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OCI__MAIN_IP"),
        *("JR_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
    )
)


class Origin(Enum):
    """Where a variable comes from, lowest precedence first. The values are for people."""

    #: Defaults that the submitter may override.
    DEFAULT = "Muster's default"
    #: The environment of the submitting process, or that of the container.
    INHERITED = "the submitter's environment"
    #: What depends on the node but may be overridden by the job: HOSTNAME, PATH, the error file.
    NODE = "the node"
    #: Values that the framework suggests.
    FRAMEWORK_DEFAULT = "the framework's default"
    #: `env` of the job, its groups and the run.
    ENV = "env"
    #: `node_env` of the group, with placeholders filled.
    NODE_ENV = "node_env"
    #: OCI's variables and Muster's own.
    MUSTER = "Muster"
    #: What the engine, or the service that started a container, sets.
    ENGINE = "the engine"
    #: The cluster as the framework needs it.
    FRAMEWORK = "the framework"


class Layer(Struct, frozen=True):
    """Variables of one origin."""

    origin: Origin
    variables: Mapping[str, str]
    #: Search paths that are put behind the value from lower layers.
    appended: Mapping[str, str] = {}

    def apply(self, values: dict[str, str]) -> None:
        """Set the variables in `values`, which has those of all lower layers."""
        values.update(self.variables)
        for name, path in self.appended.items():
            values[name] = os.pathsep.join(filter(None, [values.get(name), path]))


class Setting(NamedTuple):
    """The value of one variable."""

    value: str
    #: The layer that decided. A search path that only was extended keeps its origin.
    origin: Origin
    #: Layers whose values are not used, lowest first.
    overridden: tuple[Origin, ...] = ()


class Environment:
    """The variables of all layers, which are given from the lowest to the highest."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        #: From the lowest to the highest.
        self.layers = layers
        #: The value of each variable.
        self.values: dict[str, str] = {}
        for layer in layers:
            layer.apply(self.values)

    def setting(self, name: str) -> Setting:
        """The value of a variable with its origin, found by applying the layers again. Raises
        KeyError."""
        values: dict[str, str] = {}
        origins: list[Origin] = []
        for layer in self.layers:
            before = values.get(name)
            layer.apply(values)
            if name in layer.variables or (not before and values.get(name)):
                origins.append(layer.origin)
        return Setting(values[name], origins[-1], tuple(origins[:-1]))


class EngineValues(Struct, frozen=True):
    """What the engine chooses for one start of a node. Texts, as in the environment."""

    #: The run's secret.
    token: str
    #: The node's own network interface; None on a shared network.
    interface: str | None = None
    #: Numbers of the GPUs that the node may see, with commas; None: all.
    gpus: str | None = None
    #: Mount path -> where it really is, if that is elsewhere.
    mounted: Mapping[str, str] = {}
    #: The name by which nodes reach what listens on the loopback address of the supervisor's
    #: machine; None: that address.
    machine: str | None = None
    #: Further variables of the engine.
    extra: Mapping[str, str] = {}
    #: Whether what nodes inherit comes from their image and from what describes their container:
    #: all of it is kept with `clean_env`.
    of_image: bool = False


class NodeValues(Struct, frozen=True):
    """What only the engine knows about one start of a node. Texts, as in the environment;
    `describe.environment` has descriptions instead."""

    engine: EngineValues

    #: The submitter's environment.
    environ: Mapping[str, str]
    #: The folder of the Python interpreter that runs the job.
    python_folder: str
    #: The path of the cluster metadata file.
    cluster_file: str
    #: The node's output directory, and the one that the run's nodes share.
    outputs: str
    run_outputs: str
    #: The node's checkpoint file.
    checkpoint: str
    #: The folder with the credentials of the run's nodes; unused if it has none.
    principal: str
    #: The number of the attempt.
    attempt: str
    #: The node's incarnation.
    incarnation: str
    #: Restarts of the run that count.
    run_restarts: str
    #: When the run first started, in epoch seconds.
    run_started: str
    #: None: a /tmp of the node's own is enough.
    tmpdir: str | None = None
    #: The folder above the code, from which packages are imported; None: not needed.
    code_parent: str | None = None
    #: How the cluster's lifetime program finds out whether it is used; None: it need not.
    quiet: str | None = None


def has_tmpdir(plan: RunPlan, group: GroupPlan, mounted: Container[str] = ()) -> bool:
    """Whether programs get TMPDIR. With `clean_env` a node gets no more than a container: not
    TMPDIR if it has its own /tmp. mounted: paths of mounts that are elsewhere."""
    own_tmp = any(mount.path == "/tmp" for mount in group.mounts) and "/tmp" not in mounted
    return not (plan.clean_env and own_tmp)


def has_code_parent(plan: RunPlan) -> bool:
    """Whether packages are imported from the folder above the code: an archive's folder may be a
    package, whose modules import each other by its name."""
    return plan.artifact is not None and plan.artifact.kind == "archive"


class ProcessValues(Struct, frozen=True):
    """What differs between the processes of a node."""

    #: Fills the placeholders of `node_env` and of the framework's variables.
    fill: Callable[[str], str]
    #: Where the process may record its error.
    error_file: str | None = None


def environments(
    plan: RunPlan, node: NodePlan, values: NodeValues, processes: Iterable[ProcessValues]
) -> list[Environment]:
    """The variables of each process of a node's program."""
    group = plan.group(node.group)
    path = values.environ.get("PATH", os.defpath)
    own = {
        "HOSTNAME": node.hostname,
        "PATH": os.pathsep.join(filter(None, [values.python_folder, path])),
    }
    # a variable that holds a path below a mount has to follow the mount
    env = {name: moved(text, values.engine.mounted) for name, text in group.env.items()}
    code = {} if values.code_parent is None else {"PYTHONPATH": values.code_parent}
    # into a file, Python buffers its output by blocks; people watch it line by line
    default = Layer(Origin.DEFAULT, {"PYTHONUNBUFFERED": "1"} | _client_settings(plan, values))
    given = values.environ if values.engine.of_image else inherited(plan, values.environ)
    submitter = Layer(Origin.INHERITED, given)
    job = Layer(Origin.ENV, env)
    muster = Layer(Origin.MUSTER, node_environment(plan, node, values))
    engine = Layer(Origin.ENGINE, _engine_environment(plan, values), appended=code)
    alone = plan.oci_names and len(plan.nodes) == 1
    of_job = {name: env[name] for name in _OF_A_CLUSTER & env.keys()} if alone else {}

    def layers(process: ProcessValues) -> tuple[Layer, ...]:
        file = {} if process.error_file is None else {ERROR_FILE: process.error_file}
        return (
            default,
            submitter,
            Layer(Origin.NODE, own | file),
            Layer(Origin.FRAMEWORK_DEFAULT, _fill(group.framework_defaults, process)),
            job,
            Layer(Origin.NODE_ENV, _fill(group.node_env, process)),
            muster,
            engine,
            Layer(Origin.FRAMEWORK, _fill(group.framework_env, process)),
            *([Layer(Origin.ENV, of_job)] if of_job else ()),
        )

    return [Environment(layers(process)) for process in processes]


def _fill(templates: Mapping[str, str], process: ProcessValues) -> dict[str, str]:
    return {name: process.fill(template) for name, template in templates.items()}


def node_environment(plan: RunPlan, node: NodePlan, values: NodeValues) -> dict[str, str]:
    """OCI's variables and Muster's own, for every framework."""
    group = plan.group(node.group)
    env = {
        **_oci_environment(plan, node, values),
        "MUSTER_HOSTFILE": hostfile_beside(values.cluster_file),
        "MUSTER_RUN_ID": plan.run_id,
        "MUSTER_RUN_NAME": plan.run_name,
        "MUSTER_JOB_NAME": plan.job_name,
        "MUSTER_NODE_ID": node.node_id,
        "MUSTER_NODE_ADDRESS": node.address,
        "MUSTER_GROUP": node.group,
        "MUSTER_REPLICA": str(node.replica),
        "MUSTER_INDEX": str(node.index),
    }
    if plan.parameters is not None and plan.parameters.group == node.group:
        from muster.plan.parameters import variables  # few runs have parameters

        env |= variables(plan.parameters.values(node.replica))
    if plan.artifact is not None:
        env |= _artifact_environment(plan, group)
    for mount in group.mounts:
        env[mount.variable] = mount.path
    if plan.clean_env:
        env = {name: value for name, value in env.items() if name.startswith("MUSTER_")}
    env |= {
        m.variable: values.engine.mounted[m.path]
        for m in group.mounts
        if m.path in values.engine.mounted
    }
    env |= {
        "MUSTER_ATTEMPT": values.attempt,
        "MUSTER_RESTART": values.incarnation,
        "MUSTER_RUN_RESTARTS": values.run_restarts,
        "MUSTER_RUN_STARTED": values.run_started,
        "MUSTER_TOKEN": values.engine.token,
        "MUSTER_OUTPUTS": values.outputs,
        "MUSTER_RUN_OUTPUTS": values.run_outputs,
        "MUSTER_CHECKPOINT": values.checkpoint,
    }
    if values.quiet is not None:
        env["MUSTER_QUIET"] = values.quiet
    return env


def _client_settings(plan: RunPlan, values: NodeValues) -> dict[str, str]:
    if plan.principal is None or plan.clean_env:
        return {}
    from muster.plan.principal import client_settings  # runs of servers only

    return client_settings(plan.principal, values.principal, values.engine.machine)


def _principal_environment(plan: RunPlan, node: NodePlan, folder: str) -> dict[str, str]:
    if plan.principal is None:
        return {}
    from muster.plan.principal import credentials, node_folder, places  # runs of servers only

    own = node_folder(folder, plan.slot_of(node))
    return {**places(plan.principal), **credentials(plan.principal, own)}


def _oci_environment(plan: RunPlan, node: NodePlan, values: NodeValues) -> dict[str, str]:
    size, main = str(plan.cluster_size(node)), plan.cluster(node)[0]
    return {
        "TENANCY_OCID": LOCAL_TENANCY,
        "PROJECT_OCID": LOCAL_PROJECT,
        "PROJECT_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "JOB_OCID": ocid("datasciencejob", plan.job_id),
        "JOB_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "JOB_RUN_OCID": ocid("datasciencejobrun", plan.run_id),
        "JOB_RUN_COMPARTMENT_OCID": LOCAL_COMPARTMENT,
        "FQDN": node.fqdn,
        "NODE_RANK": str(plan.rank_in_cluster(node)),
        "NODE_GROUP_NAME": node.group,
        "INITIAL_CLUSTER_SIZE": size,
        "NODE_COUNT": size,
        CLUSTER_FILE: values.cluster_file,
        "OCI__MAIN_IP": main.address,  # ADS
        **_principal_environment(plan, node, values.principal),
        **plan.oci_names,
    }


def _artifact_environment(plan: RunPlan, group: GroupPlan) -> dict[str, str]:
    artifact = plan.artifact
    assert artifact is not None
    env = {"JOB_ARTIFACT_FILE_NAME": artifact.file_name}
    entrypoint = plan.entrypoint_of(group)
    if entrypoint is not None:
        env[ENTRYPOINT] = entrypoint
    if artifact.exclude_tags:
        env["NOTEBOOK_EXCLUDE_TAGS"] = json.dumps(artifact.exclude_tags)  # ADS
    if artifact.git is not None:
        env |= _git_environment(artifact.git)
    return env


def _git_environment(git: GitPlan) -> dict[str, str]:
    env = {
        "MUSTER_GIT_URL": git.url,
        "MUSTER_GIT_COMMIT": git.commit,
        "MUSTER_GIT_BRANCH": git.branch,
        "MUSTER_GIT_PATH": git.path,
    }
    return {name: value for name, value in env.items() if value is not None}


def _engine_environment(plan: RunPlan, values: NodeValues) -> dict[str, str]:
    env = _interfaces(plan, values.engine.interface)
    if values.tmpdir is not None:
        env["TMPDIR"] = values.tmpdir
    env |= values.engine.extra
    if values.engine.gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = values.engine.gpus
    return env


def _interfaces(plan: RunPlan, interface: str | None) -> dict[str, str]:
    """OCI: the cluster network's interface. Where nodes share an interface, Gloo finds its address
    by the host name: naming the interface would bind every node to 127.0.0.1."""
    if interface is None:
        return {} if plan.clean_env else {"JR_SOCKET_IFNAME": "lo"}
    names = ("JR_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return dict.fromkeys(names, interface)


def submitted(plan: RunPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The submitter's environment without the secret that fetched the code."""
    git = plan.artifact.git if plan.artifact else None
    secret = git.token_env if git else None
    given = dict(environ)
    if secret is not None:
        given.pop(secret, None)
    return given


def inherited(plan: RunPlan, environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the submitter's environment that programs get."""
    given = submitted(plan, environ)
    if not plan.clean_env:
        return given
    return {k: v for k, v in given.items() if k in _KEPT_BY_CLEAN_ENV or k.startswith("LC_")}


def moved(path: str, mounted: Mapping[str, str]) -> str:
    """Where a path really is, if it is below a mount that is elsewhere; else the path itself."""
    for mount in sorted(mounted, key=len, reverse=True):
        if PurePosixPath(path).is_relative_to(mount):
            return str(PurePosixPath(mounted[mount]) / PurePosixPath(path).relative_to(mount))
    return path
