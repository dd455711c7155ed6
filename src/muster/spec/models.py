"""What a user asks for: the spec, its defaults and the rules each field obeys by itself.

Rules between fields are in `spec.rules`. How input becomes these classes, with every error at
once, is in `spec.decode`; what a field accepts besides its own type stands here, beside it, in
`Meta(extra={"parse": ...})`. The docstrings' field texts end up in docs/spec.md and in the JSON
Schema.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from muster.spec.quantities import parse_duration, parse_size

#: OCI: maximumRuntimeInMinutes, default and ceiling 43,200.
MAX_RUNTIME = 30 * 86400.0
#: OCI: custom environment variables, characters of all keys and values together.
MAX_ENV_CHARACTERS = 20_000

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GROUP_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _duration(value: Any) -> Any:
    return value if isinstance(value, (bool, list, dict)) else parse_duration(value)


def _size(value: Any) -> Any:
    return value if isinstance(value, (bool, list, dict)) else parse_size(value)


def _scalar(value: Any) -> Any:
    """YAML's own scalars as the text a program would expect."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def _words(value: Any) -> Any:
    if isinstance(value, (str, int, float)):
        return shlex.split(_scalar(value))
    return [_scalar(item) for item in value] if isinstance(value, (list, tuple)) else value


def _env(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    wrong = [repr(name) for name in value if not _ENV_NAME.fullmatch(str(name))]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)} cannot name an environment variable; use letters, digits and _, "
            "not starting with a digit"
        )
    nul = [name for name, text in value.items() if "\0" in str(text)]
    if nul:
        raise ValueError(f"the value of {', '.join(nul)} holds a NUL character")
    return {str(name): _scalar(text) for name, text in value.items()}


def _group_name(name: Any) -> Any:
    if not isinstance(name, str):
        return name
    if not _GROUP_NAME.fullmatch(name) or len(name) > 40:
        raise ValueError(
            f"{name!r} is not a name for a group; use up to 40 lower-case letters, digits and -, "
            "starting with a letter"
        )
    return name


def _job_name(name: Any) -> Any:
    if not isinstance(name, str):
        return name
    if not _JOB_NAME.fullmatch(name) or len(name) > 255:
        raise ValueError(
            f"{name!r} is not a name for a job; use up to 255 letters, digits, . _ and -, "
            "starting with a letter or digit"
        )
    return name


def _runtime(value: Any) -> Any:
    seconds = _duration(value)
    if isinstance(seconds, float) and not 0 < seconds <= MAX_RUNTIME:
        raise ValueError(f"{value!r} is not more than 0 and at most 30d")
    return seconds


def _tags(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): _scalar(text) for name, text in value.items()}


_TEXT_OR_NUMBER = {"type": ["string", "number"]}
_SCALARS = {"type": ["string", "number", "boolean"]}

#: Types that accept more than they are: `parse` makes the one of the other, and
#: `extra_json_schema` is the whole of what may be written.
Duration = Annotated[float, Meta(extra={"parse": _duration}, extra_json_schema=_TEXT_OR_NUMBER)]
Runtime = Annotated[float, Meta(extra={"parse": _runtime}, extra_json_schema=_TEXT_OR_NUMBER)]
Size = Annotated[
    int, Meta(gt=0, extra={"parse": _size}, extra_json_schema={"type": ["string", "integer"]})
]
Words = Annotated[
    tuple[str, ...],
    Meta(
        extra={"parse": _words},
        extra_json_schema={"type": ["string", "array"], "items": _SCALARS},
    ),
]
Env = Annotated[
    dict[str, str],
    Meta(
        extra={"parse": _env},
        extra_json_schema={"type": "object", "additionalProperties": _SCALARS},
    ),
]
Tags = Annotated[
    dict[str, str],
    Meta(
        extra={"parse": _tags},
        extra_json_schema={"type": "object", "additionalProperties": _SCALARS},
    ),
]
GroupName = Annotated[str, Meta(extra={"parse": _group_name})]
JobName = Annotated[str, Meta(extra={"parse": _job_name})]
Count = Annotated[int, Meta(ge=1)]


class Resources(Struct, frozen=True, kw_only=True):
    """What one node may use.

    cpus: CPUs, in fractions if you like.
    memory: Memory, such as 4GiB.
    gpus: Whole GPUs.
    """

    cpus: Annotated[float, Meta(gt=0)] | None = None
    memory: Size | None = None
    gpus: Annotated[int, Meta(ge=0)] = 0


class Mount(Struct, frozen=True, kw_only=True):
    """A directory the nodes see.

    source: A directory (relative to the spec's file), an NFS export (nfs://server/path) or any
        fsspec URL (s3://bucket/prefix).
    path: Where nodes see it; a relative path is below /mnt. Default: the source's last component,
        below /mnt. Always in the environment, as MUSTER_MOUNT_<NAME>.
    read_only: Whether nodes may only read it.
    """

    source: Annotated[str, Meta(min_length=1)]
    path: str | None = None
    read_only: bool = False

    @property
    def destination(self) -> str:
        """The absolute path (OCI: destinationPath/destinationDirectoryName, /mnt by default)."""
        path = self.path or self.source.rstrip("/").rsplit("/", 1)[-1]
        absolute = path if path.startswith("/") else f"/mnt/{path}"
        return absolute.rstrip("/") or "/"


class StartupProbe(Struct, frozen=True, kw_only=True, rename={"exec_": "exec"}):
    """Says when a node is up. Give one of exec, tcp and file.

    exec: Up when this command exits 0.
    tcp: Up when something listens on this port of the node.
    file: Up when this file exists.
    period: Time between looks.
    timeout: How long one look may take.
    threshold: So many failures, and the node has failed.
    initial_delay: Time before the first look.
    """

    exec_: Words | None = None
    tcp: Annotated[int, Meta(ge=1, le=65535)] | None = None
    file: str | None = None
    period: Annotated[Duration, Meta(gt=0)] = 1.0
    timeout: Annotated[Duration, Meta(gt=0)] = 1.0
    threshold: Count = 30
    initial_delay: Annotated[Duration, Meta(ge=0)] = 0.0


class Logging(Struct, frozen=True, kw_only=True):
    """What becomes of the nodes' output.

    enabled: Whether it is kept.
    directory: Keep it here, in a folder named after the run's id, instead of under MUSTER_HOME.
    """

    enabled: bool = True
    directory: str | None = None


class NodeGroup(Struct, frozen=True, kw_only=True):
    """Nodes that share one configuration. What is left out is taken from the job.

    name: Unique within the job.
    nodes: Nodes in each replica.
    replicas: Units that succeed and fail as one.
    command: What to run, instead of the artifact.
    args: Arguments of the program.
    env: Environment variables, on top of the job's.
    resources: What each node may use.
    shape: Or the name of a shape that says so.
    image: Container image, for engines that use one.
    mounts: Mounts, besides the job's.
    startup_probe: When its nodes count as up. Default: as soon as they run.
    min_success: Replicas that must succeed. Default: all.
    """

    name: GroupName
    nodes: Count = 1
    replicas: Count = 1
    command: Words | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: str | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None


class JobSpec(Struct, frozen=True, kw_only=True):
    """A job.

    name: Default: from the file's name.
    description: For people.
    artifact: The code: a Python file, shell script, folder, zip, tar(.gz/.bz2/.xz), JAR or class
        file.
    entrypoint: The file to run inside a folder or archive; required there.
    command: What to run instead. Text is split as a shell would split it; no shell runs.
    args: Arguments of the program.
    env: Environment variables.
    framework: generic, pytorch, or an installed one.
    processes_per_node: Processes on each node.
    nodes: Short for one group of so many nodes.
    node_groups: Groups of nodes, in rank order.
    startup: All groups at once, or each when the one before it is up.
    resources: What each node may use.
    shape: Or the name of a shape that says so.
    image: Container image, for engines that use one.
    mounts: Directories every node sees.
    network: shared: the machine's, each node with an address of its own. isolated: an interface
        a node, closed to everything else. Default: what the framework needs.
    max_runtime: After so long the run is canceled. At most 30d.
    grace_period: Time between SIGTERM and SIGKILL when a run is ended.
    startup_probe: With `nodes`: when they count as up.
    min_success: With `nodes`: replicas that must succeed.
    logging: What becomes of the nodes' output.
    tags: Labels of your own.
    """

    name: JobName | None = None
    description: str = ""
    artifact: str | None = None
    entrypoint: str | None = None
    command: Words | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    framework: str = "generic"
    processes_per_node: Count = 1
    nodes: Count | None = None
    node_groups: tuple[NodeGroup, ...] = ()
    startup: Literal["parallel", "in_order"] = "parallel"
    resources: Resources | None = None
    shape: str | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] = ()
    network: Literal["shared", "isolated"] | None = None
    max_runtime: Runtime = MAX_RUNTIME
    grace_period: Annotated[Duration, Meta(ge=0)] = 10.0
    startup_probe: StartupProbe | None = None
    min_success: Annotated[int, Meta(ge=0)] | None = None
    logging: Logging = Logging()
    tags: Tags = field(default_factory=dict)


class GroupOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of one group; what is left out stays."""

    nodes: Count | None = None
    replicas: Count | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: str | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] | None = None


class RunOverrides(Struct, frozen=True, kw_only=True):
    """What a run may change of its Job. env is merged key by key; everything else replaces.

    What is said here for the whole run beats what the Job says, job-wide or for a group; what is
    said here for a group beats that.
    """

    nodes: Count | None = None
    args: Words | None = None
    env: Env = field(default_factory=dict)
    resources: Resources | None = None
    shape: str | None = None
    image: str | None = None
    mounts: tuple[Mount, ...] | None = None
    max_runtime: Runtime | None = None
    logging: Logging | None = None
    node_groups: dict[str, GroupOverrides] = field(default_factory=dict)
