"""A Job and a run's overrides into what the run is: one normal form, and where each value is from.

In normal form there is at least one group and every group carries everything it inherits, so that
nobody after this needs to look at the job-wide fields again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode
from muster.spec.models import DEFAULT_GROUP, JobSpec, NodeGroup, Resources
from muster.spec.oci_variables import ENTRYPOINT, command_in, image_in, overruled
from muster.spec.origins import Origin, job_origins, told
from muster.spec.override_models import GroupOverrides, RunOverrides
from muster.spec.policies import FailurePolicy, named_rules
from muster.spec.rules import check
from muster.spec.wording import Refused, suggestion

_INHERITED = ("command", "args", "image", "ready_timeout", "hang_timeout")
#: What only a group can say.
_OWN = (
    "max_replicas",
    "working_dir",
    "node_args",
    "startup_probe",
    "min_success",
    "depends_on",
    "max_restarts",
    "retries",
    "timeout",
    "max_runtime",
    "hostname",
)
#: What a run can say for its only group without naming it.
_OF_ONE_GROUP = ("nodes", "startup_probe", "min_success")
#: What only the whole run has, and is the same for all of it.
_OF_RUN = (
    "startup",
    "network",
    "max_runtime",
    "grace_period",
    "attempt_timeout",
    "success",
    "checkpoint",
    "suspend",
    "processes_per_node",
    "logging",
    "keep_attempts",
    "ttl_after_finished",
    "subdomain",
    "namespace",
    "clean_env",
)


class Resolved(Struct, frozen=True):
    """spec: in normal form. origins: path -> where the value is from. notes: what was said and is
    not used."""

    spec: JobSpec
    origins: Mapping[str, Origin]
    notes: tuple[str, ...] = ()


def resolve(job: JobSpec, overrides: RunOverrides) -> Resolved:
    """Merge. Raises InvalidInput if an override names no group or breaks a rule."""
    resolved, problems = merge(job, overrides)
    problems = problems or check(resolved.spec)
    if problems:
        raise InvalidInput(*problems)
    return resolved


def merge(job: JobSpec, overrides: RunOverrides) -> tuple[Resolved, list[Problem]]:
    """The two together, and what is wrong with the names of groups in overrides: those are left
    out."""
    written = job.node_groups or (_shorthand(job),)
    overrides, problems = _by_name(written, overrides)
    problems += _unknown_groups(written, overrides)
    origins: dict[str, Origin] = dict(job_origins(job, overrides))
    groups = []
    for group in written:
        merged, theirs = _merge(job, group, overrides)
        groups.append(merged)
        origins |= {f"node_groups[{group.name}].{name}": origin for name, origin in theirs.items()}
    spec = replace(
        job,
        node_groups=tuple(groups),
        nodes=None,
        startup_probe=None,
        min_success=None,
        env={},
        args=None,
        mounts=(),
        resources=None,
        shape=None,
        image=None,
        ready_timeout=None,
        hang_timeout=None,
        failure=_failure(job, overrides),
        tags={**job.tags, **overrides.tags},
        framework_options={**job.framework_options, **overrides.framework_options},
        **_of_run(job, overrides),
    )
    if spec.attempt_timeout is None:
        origins.pop("attempt_timeout", None)
    return Resolved(spec, origins, tuple(overruled(job, spec.node_groups))), problems


def _failure(job: JobSpec, overrides: RunOverrides) -> FailurePolicy:
    failure = overrides.failure or job.failure
    if overrides.max_restarts is not None:
        failure = replace(failure, max_restarts=overrides.max_restarts)
    rules = tuple(replace(rule, name=name) for rule, name in named_rules(failure.rules))
    return replace(failure, rules=rules)


def _of_run(job: JobSpec, overrides: RunOverrides) -> dict[str, Any]:
    changes = {name: said for name in _OF_RUN if (said := getattr(overrides, name)) is not None}
    if overrides.command is not None:
        changes |= {"command": overrides.command, "entrypoint": None}  # it takes its place
    longest, limit = overrides.max_runtime, job.attempt_timeout
    if longest is not None and limit is not None and limit > longest:
        changes.setdefault("attempt_timeout", None)  # a short run does not live to see it
    return changes


def _shorthand(job: JobSpec) -> NodeGroup:
    return NodeGroup(
        name=DEFAULT_GROUP,
        nodes=job.nodes or 1,
        startup_probe=job.startup_probe,
        min_success=job.min_success,
    )


def _by_name(
    groups: tuple[NodeGroup, ...], overrides: RunOverrides
) -> tuple[RunOverrides, list[Problem]]:
    """Groups by name that were given by number, as in `node_groups[0].nodes`."""
    names = {str(number): group.name for number, group in enumerate(groups)}
    known = {group.name for group in groups}
    if not any(name in names and name not in known for name in overrides.node_groups):
        return overrides, []
    problems = []
    changes: dict[str, GroupOverrides] = {}
    for said, change in overrides.node_groups.items():
        name = said if said in known else names.get(said, said)
        if name in changes:
            text = f"given as {said}, too"
            hint = "say it in one of the ways"
            problems.append(Problem(f"node_groups[{name}]", text, hint))
        changes[name] = change
    return replace(overrides, node_groups=changes), problems


def _unknown_groups(groups: tuple[NodeGroup, ...], overrides: RunOverrides) -> list[Problem]:
    known = [group.name for group in groups]
    problems = [
        Problem(f"node_groups[{name}]", f"no group named {name!r}", suggestion(name, known))
        for name in overrides.node_groups
        if name not in known
    ]
    for name in _OF_ONE_GROUP if len(known) > 1 else ():
        if (said := getattr(overrides, name)) is not None:
            way = f"--set node_groups.{known[0]}.{name}=..."
            way = f"--nodes {known[0]}={said}" if name == "nodes" else way
            text = f"the job has the groups {', '.join(known)}"
            problems.append(Problem(name, text, f"say for which: {way}"))
    return problems


def _merge(
    job: JobSpec, group: NodeGroup, overrides: RunOverrides
) -> tuple[NodeGroup, dict[str, Origin]]:
    """The group with all it inherits, and where each of its settings is from."""
    own = overrides.node_groups.get(group.name, GroupOverrides())
    # whoever comes first wins
    levels: tuple[tuple[Any, Origin], ...] = (
        (own, "override"),
        (overrides, "override"),
        (group, "job"),
        (job, "job"),
    )
    changes: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name in ("nodes", "replicas"):
        said = _said(own, overrides, name)
        changes[name] = getattr(group, name) if said is None else said
        given: Origin = "default" if getattr(group, name) == 1 else "job"
        origins[name] = given if said is None else "override"
    for name in _INHERITED:
        for level, origin in levels:
            if getattr(level, name, None) is not None:
                changes[name], origins[name] = getattr(level, name), origin
                break
    for place, (level, origin) in enumerate(levels):
        if level.resources is not None or level.shape is not None:
            below = [weaker for weaker, _ in levels[place + 1 :]]
            resources = level.resources or _disk(below)
            changes |= {"resources": resources, "shape": level.shape}
            if resources is not None:
                origins["resources"] = origin if level.resources is not None else "job"
            if level.shape is not None:
                origins["shape"] = origin
            break
    mounts = own.mounts if own.mounts is not None else overrides.mounts
    changes["mounts"] = (*job.mounts, *group.mounts) if mounts is None else mounts
    if mounts is not None or changes["mounts"]:
        origins["mounts"] = "job" if mounts is None else "override"
    origins |= dict.fromkeys(told(group, NodeGroup(name=group.name), _OWN), "job")
    for name in _OWN:
        if (said := _said(own, overrides, name)) is not None:
            changes[name], origins[name] = said, "override"
    changes["node_env"] = {**group.node_env, **own.node_env}
    origins |= {f"node_env.{name}": "job" for name in group.node_env}
    origins |= {f"node_env.{name}": "override" for name in own.node_env}
    changes["env"] = {}
    for level, origin in reversed(levels):
        changes["env"] |= level.env
        origins |= {f"env.{name}": origin for name in level.env}
    _of_variables(job, any(ENTRYPOINT in level.env for level, _ in levels[:-1]), changes, origins)
    return replace(group, **changes), origins


def _of_variables(
    job: JobSpec, chosen: bool, changes: dict[str, Any], origins: dict[str, Origin]
) -> None:
    """What OCI's variables say, where no field does. chosen: whether the group or the run has an
    entry point of its own."""
    env = changes["env"]
    if ENTRYPOINT in env and job.entrypoint is not None and not chosen:
        env[ENTRYPOINT] = job.entrypoint  # what programs are told
    image = image_in(env)
    if image is not None and changes.get("image") is None:
        changes["image"], origins["image"] = image[1], origins[f"env.{image[0]}"]
    if job.artifact is None and job.git is None and changes.get("command") is None:
        with contextlib.suppress(Refused):  # `rules` says where
            changes["command"] = command_in(env) or None


def _disk(levels: Sequence[Any]) -> Resources | None:
    """What is said of the disk below a level that says a shape, which has none."""
    said = next((level.resources for level in levels if level.resources is not None), None)
    if said is None or said.disk is None:
        return None
    return Resources(disk=said.disk, disk_image=said.disk_image)


def _said(own: GroupOverrides, overrides: RunOverrides, name: str) -> Any:
    """What a run says of a group's setting: for the group, or for the only one there is."""
    said = getattr(own, name)
    return getattr(overrides, name) if said is None and name in _OF_ONE_GROUP else said


def setting_value(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a path of `origins`, in a spec in normal form as plain data."""
    found: Any = spec
    for name, key in re.findall(r"([A-Za-z_]\w*)|\[([^\]]+)\]", path):
        found = next(item for item in found if item["name"] == key) if key else found[name]
    return found


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    """A spec as it was stored, by this version or an older one."""
    problems: list[Problem] = []
    spec = decode(JobSpec, data, problems)
    if spec is None:
        raise InvalidInput(*problems)
    return spec
