"""A Job and a run's overrides into what the run is: one normal form, and where each value is from.

In normal form there is at least one group and every group carries everything it inherits, so that
nobody after this needs to look at the job-wide fields again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode
from muster.spec.models import GroupOverrides, JobSpec, NodeGroup, RunOverrides
from muster.spec.rules import check

Origin = Literal["job", "override", "default"]

#: What the one group of `nodes: N` is called.
DEFAULT_GROUP = "workers"
_INHERITED = ("command", "args", "image")


class Resolved(Struct, frozen=True):
    """spec: in normal form. origins: path -> where the value is from."""

    spec: JobSpec
    origins: Mapping[str, Origin]


def resolve(job: JobSpec, overrides: RunOverrides) -> Resolved:
    """Merge. Raises InvalidInput if an override names no group or breaks a rule."""
    written = job.node_groups or (_shorthand(job),)
    problems = _unknown_groups(written, overrides)
    if problems:
        raise InvalidInput(*problems)
    groups = tuple(_group(job, group, overrides) for group in written)
    spec = replace(
        job,
        node_groups=groups,
        nodes=None,
        startup_probe=None,
        min_success=None,
        env={},
        args=None,
        mounts=(),
        resources=None,
        shape=None,
        image=None,
        max_runtime=job.max_runtime if overrides.max_runtime is None else overrides.max_runtime,
        logging=overrides.logging or job.logging,
    )
    problems = check(spec)
    if problems:
        raise InvalidInput(*problems)
    return Resolved(spec, dict(_origins(job, overrides, spec)))


def _shorthand(job: JobSpec) -> NodeGroup:
    return NodeGroup(
        name=DEFAULT_GROUP,
        nodes=job.nodes or 1,
        startup_probe=job.startup_probe,
        min_success=job.min_success,
    )


def _unknown_groups(groups: tuple[NodeGroup, ...], overrides: RunOverrides) -> list[Problem]:
    from difflib import get_close_matches

    known = [group.name for group in groups]
    problems = []
    for name in overrides.node_groups:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(known)}"
            problems.append(Problem(f"node_groups[{name}]", f"no group named {name!r}", hint))
    if overrides.nodes is not None and len(known) > 1:
        hint = f"say for which: --nodes {known[0]}={overrides.nodes}"
        problems.append(Problem("nodes", f"the job has the groups {', '.join(known)}", hint))
    return problems


def _group(job: JobSpec, group: NodeGroup, overrides: RunOverrides) -> NodeGroup:
    own = overrides.node_groups.get(group.name, GroupOverrides())
    changes: dict[str, Any] = {
        name: _first(
            getattr(own, name, None),
            getattr(overrides, name, None),
            getattr(group, name),
            getattr(job, name),
        )
        for name in _INHERITED
    }
    for level in (own, overrides, group, job):
        if level.resources is not None or level.shape is not None:
            changes |= {"resources": level.resources, "shape": level.shape}
            break
    changes["env"] = {**job.env, **group.env, **overrides.env, **own.env}
    changes["mounts"] = _first(own.mounts, overrides.mounts, (*job.mounts, *group.mounts))
    changes["nodes"] = _first(own.nodes, overrides.nodes, group.nodes)
    changes["replicas"] = _first(own.replicas, group.replicas)
    return replace(group, **changes)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _origins(job: JobSpec, overrides: RunOverrides, spec: JobSpec) -> Iterator[tuple[str, Origin]]:
    written = asdict(job)
    defaults = asdict(JobSpec())
    for name in ("framework", "processes_per_node", "startup", "network", "grace_period"):
        yield name, "default" if written[name] == defaults[name] else "job"
    for name in ("max_runtime", "logging"):
        said = getattr(overrides, name) is not None
        given: Origin = "default" if written[name] == defaults[name] else "job"
        yield name, "override" if said else given
    mine = {group.name: group for group in job.node_groups}
    for group in spec.node_groups:
        own = overrides.node_groups.get(group.name, GroupOverrides())
        yield from _group_origins(job, mine.get(group.name), overrides, own, group)


def _group_origins(
    job: JobSpec,
    written: NodeGroup | None,
    overrides: RunOverrides,
    own: GroupOverrides,
    group: NodeGroup,
) -> Iterator[tuple[str, Origin]]:
    path = f"node_groups[{group.name}]"
    empty = NodeGroup(name=group.name)
    for name in ("nodes", "replicas", "command", "args", "resources", "shape", "image", "mounts"):
        value = getattr(group, name)
        if any(getattr(level, name, None) not in (None, ()) for level in (own, overrides)):
            yield f"{path}.{name}", "override"
        elif value != getattr(empty, name) or (written is None and getattr(job, name, None)):
            yield f"{path}.{name}", "job"
        elif name in ("nodes", "replicas"):
            yield f"{path}.{name}", "default"
    for name in ("startup_probe", "min_success"):
        if getattr(group, name) is not None:
            yield f"{path}.{name}", "job"
    for key in group.env:
        yield f"{path}.env.{key}", "override" if key in {**overrides.env, **own.env} else "job"


def setting_value(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a path of `origins`, in a spec in normal form as plain data."""
    found: Any = spec
    for name, key in re.findall(r"([A-Za-z_]\w*)|\[([^\]]+)\]", path):
        found = next(group for group in found if group["name"] == key) if key else found[name]
    return found


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    """A spec as it was stored, by this version or an older one."""
    problems: list[Problem] = []
    spec = decode(JobSpec, data, problems)
    if spec is None:
        raise InvalidInput(*problems)
    return spec
