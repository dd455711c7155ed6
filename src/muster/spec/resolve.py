"""Merge a Job with a run's overrides into the run's spec in normal form, and record origins.

In normal form there is at least one group and each group has all that it inherits, so that later
steps do not look at the job-wide fields again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode
from muster.spec.models import Array, JobSpec, NodeGroup, Resources
from muster.spec.oci_variables import ENTRYPOINT, apply_variables, unused_entrypoint
from muster.spec.origins import Origin, changed, job_origins
from muster.spec.override_models import (
    GROUP_ONLY,
    INHERITED,
    ONLY_GROUP,
    RUN_WIDE,
    GroupOverrides,
    RunOverrides,
)
from muster.spec.policies import FailurePolicy, named_rules
from muster.spec.rules import check
from muster.spec.rules.structure import unfilled_placeholders
from muster.spec.wording import short, suggestion

#: Settings that groups inherit by their own rule; the first value found wins for the others.
_COMBINED = ("resources", "shape", "mounts")
_JOB_DEFAULTS = JobSpec()


class Resolved(Struct, frozen=True):
    """A Job merged with a run's overrides."""

    spec: JobSpec
    """In normal form."""
    origins: Mapping[str, Origin]
    """Path -> origin of the value."""
    notes: tuple[str, ...] = ()
    """Values that were given but are not used."""


def resolve(job: JobSpec, overrides: RunOverrides) -> Resolved:
    """Merge and check. Raises InvalidInput for unknown groups and broken rules."""
    resolved, problems = merge(job, overrides)
    problems = problems or [*check(resolved.spec), *unfilled_placeholders(resolved.spec)]
    if problems:
        raise InvalidInput(*problems)
    return resolved


def merge(job: JobSpec, overrides: RunOverrides) -> tuple[Resolved, list[Problem]]:
    """Merge without checking rules. Returns problems of group names in overrides; overrides of
    unknown groups are ignored, and those of a group that is not named."""
    written = job.node_groups or (job.only_group,)
    overrides, problems = _by_name(written, overrides)
    problems += _unknown_groups(written, overrides)
    origins: dict[str, Origin] = dict(job_origins(job, overrides))
    if len(written) > 1:
        several = [name for name in ONLY_GROUP if getattr(overrides, name) is not None]
        problems += _without_group(written, overrides, several)
        overrides = replace(overrides, **dict.fromkeys(several))
        origins |= dict.fromkeys(several, "override")  # where the problem is
    groups = []
    notes = list(unused_entrypoint(job))
    for group in written:
        merged, theirs, unused = _merge(job, group, overrides)
        groups.append(merged)
        notes += [f"group {group.name}: {note}" for note in unused]
        if merged.array is not None:
            from muster.spec.arrays import notes_on  # few groups have an array

            notes += notes_on(merged.array)
            notes += _replaced_parameters(group.array, merged.array)
        if merged.parallelism and merged.first_replicas == 1 and merged.nodes > 1:
            text = f"parallelism has no effect: there is 1 replica, of {merged.nodes} nodes"
            notes.append(f"{text} (--replicas N or --array for more)")
        origins |= {f"node_groups[{group.name}].{name}": origin for name, origin in theirs.items()}
    spec = replace(
        job,
        **{
            **_moved_to_groups(),
            "engine": job.engine_name,
            **_run_wide(job, overrides),
            "node_groups": tuple(groups),
            "failure": _failure(job, overrides),
            "tags": {**job.tags, **overrides.tags},
            "notify": {**job.notify, **overrides.notify},
            "framework_options": {**job.framework_options, **overrides.framework_options},
        },
    )
    if spec.attempt_timeout is None:
        origins.pop("attempt_timeout", None)
    if job.workload is not None:  # nobody has written them: `job_of` has
        own = {name for name in origins if name.startswith(("failure.", "grace_period"))}
        origins |= {name: "default" for name in own if origins[name] == "job"}
    return Resolved(spec, origins, tuple(notes)), problems


def _replaced_parameters(job: Array | None, run: Array) -> Iterator[str]:
    """A sentence on the parameters of a job's array that a run's array does not have."""
    if job is None or job == run:
        return
    from muster.spec.arrays import names_of

    names = names_of(run)
    if dropped := [name for name in names_of(job) if name not in names]:
        text = f"the array replaces the job's, without its {', '.join(dropped)}"
        # a parameter can be set by its name, one of a file cannot
        hint = f" (--set array.{(names or dropped)[0]}=... keeps them)" if run.rows is None else ""
        yield text + hint


def _failure(job: JobSpec, overrides: RunOverrides) -> FailurePolicy:
    failure = overrides.failure or job.failure
    if overrides.max_restarts is not None:
        failure = replace(failure, max_restarts=overrides.max_restarts)
    rules = tuple(replace(rule, name=name) for rule, name in named_rules(failure.rules))
    return replace(failure, rules=rules)


def _moved_to_groups() -> dict[str, Any]:
    """The job-wide fields that groups have in normal form, at their defaults."""
    # the command is kept: it shows whether the job runs a command or its code
    names = (*INHERITED, *ONLY_GROUP, "env")
    return {name: getattr(_JOB_DEFAULTS, name) for name in names if name != "command"}


def _run_wide(job: JobSpec, overrides: RunOverrides) -> dict[str, Any]:
    """The run-wide settings that the run overrides."""
    changes = {name: value for name in RUN_WIDE if (value := getattr(overrides, name)) is not None}
    if overrides.command is not None:
        changes |= {"command": overrides.command, "entrypoint": None}  # runs instead of the code
    longest, limit = overrides.max_runtime, job.attempt_timeout
    if longest is not None and limit is not None and limit > longest:
        # max_runtime would end the run before this limit
        changes.setdefault("attempt_timeout", None)
    return changes


def _by_name(
    groups: tuple[NodeGroup, ...], overrides: RunOverrides
) -> tuple[RunOverrides, list[Problem]]:
    """The overrides with groups by name where they are given by number (`node_groups[0].nodes`)."""
    names = {str(number): group.name for number, group in enumerate(groups)}
    known = {group.name for group in groups}
    if not any(name in names and name not in known for name in overrides.node_groups):
        return overrides, []
    problems = []
    changes: dict[str, GroupOverrides] = {}
    for given, change in overrides.node_groups.items():
        name = given if given in known else names.get(given, given)
        if name in changes:
            text = f"also given as {given}"
            hint = "use one of the two"
            problems.append(Problem(f"node_groups[{name}]", text, hint))
        changes[name] = change
    return replace(overrides, node_groups=changes), problems


def _unknown_groups(groups: tuple[NodeGroup, ...], overrides: RunOverrides) -> list[Problem]:
    known = [group.name for group in groups]
    return [
        Problem(f"node_groups[{name}]", f"no group named {short(name)}", suggestion(name, known))
        for name in overrides.node_groups
        if name not in known
    ]


def _without_group(
    groups: tuple[NodeGroup, ...], overrides: RunOverrides, names: Sequence[str]
) -> list[Problem]:
    """The problem of settings of a group that is not named, if there are any."""
    if not names:
        return []
    text = f"the job has the groups {', '.join(group.name for group in groups)}"
    flags = (flag for name in names for flag in _flags_of_group(groups[0].name, name, overrides))
    return [Problem(names[0], text, f"name the group: {' '.join(flags)}")]


def _flags_of_group(group: str, name: str, overrides: RunOverrides) -> list[str]:
    """The flags with which a setting is that of a group."""
    value = getattr(overrides, name)
    if name == "nodes":
        return [f"--nodes {group}={value}"]
    path = f"--set node_groups.{group}.{name}"
    if not isinstance(value, Array):
        return [f"{path}={value if isinstance(value, (int, str)) else '...'}"]
    import shlex  # only for this error

    given = {name: shlex.quote(text) for name, text in value.parameters.items()}
    settings = {
        "file": value.file,
        "sample": value.sample,
        "sample_seed": value.sample_seed or None,
    }
    given |= {name: shlex.quote(str(each)) for name, each in settings.items() if each is not None}
    return [f"{path}.{name}={text}" for name, text in given.items()] or [f"{path}=..."]


#: Where a group's value may be given, in order of precedence.
_Levels = tuple[tuple[Any, Origin], ...]


def _merge(
    job: JobSpec, group: NodeGroup, overrides: RunOverrides
) -> tuple[NodeGroup, dict[str, Origin], tuple[str, ...]]:
    """The group with all that it inherits, the origin of each of its settings, and notes on OCI's
    variables that are not used."""
    own = overrides.node_groups.get(group.name, GroupOverrides())
    levels: _Levels = (
        (own, "override"),
        (overrides, "override"),
        (group, "job"),
        (job, "job"),
    )
    changes: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for name in ("nodes", "replicas"):
        value = _override(own, overrides, name)
        changes[name] = getattr(group, name) if value is None else value
        given: Origin = "default" if getattr(group, name) == 1 else "job"
        origins[name] = given if value is None else "override"
    for name in INHERITED:
        if name not in _COMBINED:
            _inherit(name, levels, changes, origins)
    _merge_resources(levels, changes, origins)
    mounts = own.mounts if own.mounts is not None else overrides.mounts
    changes["mounts"] = (*job.mounts, *group.mounts) if mounts is None else mounts
    if mounts is not None or changes["mounts"]:
        origins["mounts"] = "job" if mounts is None else "override"
    origins |= dict.fromkeys(changed(group, NodeGroup(name=group.name), GROUP_ONLY), "job")
    for name in GROUP_ONLY:
        if (value := _override(own, overrides, name)) is not None:
            changes[name], origins[name] = value, "override"
    array = changes.get("array", group.array)
    if array is not None and changes["replicas"] == 1:  # another number is reported by `check`
        changes["replicas"] = array.size
        del origins["replicas"]  # the array's says it
    _merge_env(levels, changes, origins)
    applied = apply_variables(
        job,
        changes["env"],
        changes.get("image"),
        changes.get("command"),
        own_entrypoint=any(ENTRYPOINT in level.env for level, _ in levels[:-1]),
    )
    changes |= {"env": applied.env, "image": applied.image, "command": applied.command}
    if applied.image_variable is not None:
        origins["image"] = origins[f"env.{applied.image_variable}"]
    return replace(group, **changes), origins, applied.notes


def _inherit(
    name: str, levels: _Levels, changes: dict[str, Any], origins: dict[str, Origin]
) -> None:
    """Take the first value given."""
    for level, origin in levels:
        if getattr(level, name, None) is not None:
            changes[name], origins[name] = getattr(level, name), origin
            return


def _merge_resources(levels: _Levels, changes: dict[str, Any], origins: dict[str, Origin]) -> None:
    """Resources and shape come from the same level: the first that has one of them."""
    for place, (level, origin) in enumerate(levels):
        if level.resources is None and level.shape is None:
            continue
        below = [weaker for weaker, _ in levels[place + 1 :]]
        resources = level.resources or _disk(below)
        changes |= {"resources": resources, "shape": level.shape}
        if resources is not None:
            origins["resources"] = origin if level.resources is not None else "job"
        if level.shape is not None:
            origins["shape"] = origin
        return


def _merge_env(levels: _Levels, changes: dict[str, Any], origins: dict[str, Origin]) -> None:
    (own, _), _, (group, _), _ = levels
    changes["node_env"] = {**group.node_env, **own.node_env}
    origins |= {f"node_env.{name}": "job" for name in group.node_env}
    origins |= {f"node_env.{name}": "override" for name in own.node_env}
    changes["env"] = {}
    for level, origin in reversed(levels):
        changes["env"] |= level.env
        origins |= {f"env.{name}": origin for name in level.env}


def _disk(levels: Sequence[Any]) -> Resources | None:
    """The disk of the first resources in these levels. A shape above them has no disk."""
    found = next((level.resources for level in levels if level.resources is not None), None)
    if found is None or found.disk is None:
        return None
    return Resources(disk=found.disk, disk_image=found.disk_image)


def _override(own: GroupOverrides, overrides: RunOverrides, name: str) -> Any:
    """A run's value for a group: the group's override, or the run's if there is one group."""
    value = getattr(own, name)
    return getattr(overrides, name) if value is None and name in ONLY_GROUP else value


def setting_value(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a path of `origins`, in a spec in normal form as plain data. Raises LookupError
    if a record on the way is not set, or a list has no item of that name."""
    found: Any = spec
    for name, key in re.findall(r"([A-Za-z_]\w*)|\[([^\]]+)\]", path):
        if found is None:
            raise LookupError(f"{path}: {name or key} of what is not set")
        found = _named_item(found, key) if key else found[name]
    return found


def _named_item(items: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    for item in items:
        if item["name"] == name:
            return item
    raise LookupError(f"no item is named {name}")


def spec_from_json(data: Mapping[str, Any]) -> JobSpec:
    """A stored spec, written by this version or an older one."""
    problems: list[Problem] = []
    spec = decode(JobSpec, data, problems)
    if spec is None:
        raise InvalidInput(*problems)
    return spec
