"""Rules between fields: what single values cannot tell. Pure; every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from muster.errors import Problem
from muster.spec.models import DEFAULT_FRAMEWORK, JobSpec, Mount, NodeGroup, StartupProbe
from muster.spec.name_rules import bad_hostnames, name_conflicts
from muster.spec.oci_variables import bad_variables, image_in, says_command
from muster.spec.order_rules import order_conflicts
from muster.spec.placeholders import as_label
from muster.spec.places import follows, touched
from muster.spec.policy_rules import policy_conflicts, policy_gaps
from muster.spec.size_rules import too_long_commands, too_many_groups
from muster.spec.source_rules import lost_programs, source_conflicts, source_gaps
from muster.spec.values import MAX_ENV_CHARACTERS, MAX_NODES, MAX_PROCESSES

_TAKEN = ("/", "/proc", "/sys", "/dev")


def check(spec: JobSpec, broken: Collection[str] = ()) -> list[Problem]:
    """What is wrong with a spec as it was written.

    broken: paths of what could not be read, and is at its default: rules that need it are left
    out, and so is whatever else is said of it.
    """
    if alone := too_many_groups(spec):
        return alone
    rules = (rule for rule, needs in _RULES if not broken or not touched(needs, broken))
    return [p for rule in rules for p in rule(spec) if not follows(p.path, broken)]


def _blind_probes(spec: JobSpec) -> Iterator[Problem]:
    for path, probe in _probes(spec):
        if probe is not None and probe.exec_ is None and probe.tcp is None and probe.file is None:
            hint = "give exactly one of exec, tcp and file"
            yield Problem(path, "has neither exec, tcp nor file", hint)


def _missing(spec: JobSpec) -> Iterator[Problem]:
    if spec.artifact is not None or spec.git is not None or spec.command is not None:
        return
    if says_command(spec.env):
        return
    if not any(group.command or says_command(group.env) for group in spec.node_groups):
        yield Problem("", "nothing to run", _to_run(spec))
        return
    if spec.framework != DEFAULT_FRAMEWORK:
        return  # it may know itself what some groups run
    for number, group in enumerate(spec.node_groups):
        if group.command is None and not says_command(group.env):
            text = f"nothing to run in group {group.name}"
            hint = "give it a command, or the job an artifact"
            yield Problem(f"node_groups[{number}]", text, hint)


def _to_run(spec: JobSpec) -> str:
    if any(image_in(env) for env in (spec.env, *(group.env for group in spec.node_groups))):
        return "images are not run here: say in CONTAINER_ENTRYPOINT, CONTAINER_CMD what it runs"
    return "give an artifact or a command"


def _probes(spec: JobSpec) -> Iterator[tuple[str, StartupProbe | None]]:
    yield "startup_probe", spec.startup_probe
    for number, group in enumerate(spec.node_groups):
        yield f"node_groups[{number}].startup_probe", group.startup_probe


def _numbers(spec: JobSpec) -> Iterator[Problem]:
    if spec.min_success is not None and spec.min_success > 1 and not spec.node_groups:
        text = f"{spec.min_success} replicas cannot succeed where there is 1"
        yield Problem("min_success", text, "write a group with replicas instead of nodes")
    for number, group in enumerate(spec.node_groups):
        if group.min_success is not None and group.min_success > group.replicas:
            text = f"{group.min_success} replicas cannot succeed where there are {group.replicas}"
            path = f"node_groups[{number}].min_success"
            yield Problem(path, text, f"at most {group.replicas}")
        if group.most_replicas < group.replicas:
            text = f"{group.max_replicas} is fewer than the {group.replicas} there are at first"
            path = f"node_groups[{number}].max_replicas"
            yield Problem(path, text, f"at least {group.replicas}")
    total = spec.most_nodes or spec.nodes or 1
    if total > MAX_NODES:
        path = "node_groups" if spec.node_groups else "nodes"
        yield Problem(path, f"{total:,} nodes in all", f"a run can have {MAX_NODES:,}")
    elif (processes := total * spec.processes_per_node) > MAX_PROCESSES:
        hint = f"a run can have {MAX_PROCESSES:,}"
        yield Problem("processes_per_node", f"{processes:,} processes in all", hint)


def _job(spec: JobSpec) -> Iterator[Problem]:
    if spec.node_groups:
        for name in ("nodes", "startup_probe", "min_success"):
            if getattr(spec, name) is not None:
                hint = "say it for the groups it is meant for"
                yield Problem(name, "cannot stand beside node_groups", hint)
    if spec.command is not None and spec.entrypoint is not None:
        yield Problem("command", "stands beside entrypoint", "keep the one you mean")
    yield from _own("", spec)


def _duplicates(spec: JobSpec) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    labels: dict[str, str] = {}
    for number, group in enumerate(spec.node_groups):
        label = as_label(group.name)
        if group.name in seen:
            text = f"{group.name!r} is the name of node_groups[{seen[group.name]}] already"
            yield Problem(f"node_groups[{number}].name", text, "group names are unique")
        elif label in labels:
            text = f"{group.name!r} and {labels[label]!r} are both {label} in host names"
            hint = "let them differ in more than capitals, - and _"
            yield Problem(f"node_groups[{number}].name", text, hint)
        seen.setdefault(group.name, number)
        labels.setdefault(label, group.name)


def _groups(spec: JobSpec) -> Iterator[Problem]:
    too_long = list(_env("env", spec.env))
    yield from too_long
    yield from _mounts("mounts", spec.mounts)
    for number, group in enumerate(spec.node_groups):
        path = f"node_groups[{number}]"
        yield from _own(f"{path}.", group)
        if not too_long:  # a group cannot help what the job gives it
            yield from _env(f"{path}.env", {**spec.env, **group.env, **group.node_env})
        yield from _mounts(f"{path}.mounts", group.mounts, spec.mounts)
        if ".." in (group.working_dir or "").split("/"):
            text = f"{group.working_dir} leads out of where it begins"
            yield Problem(f"{path}.working_dir", text, "write it without ..")


def _own(prefix: str, level: JobSpec | NodeGroup) -> Iterator[Problem]:
    """What the job and a group have alike."""
    if level.startup_probe is not None:
        yield from _probe(f"{prefix}startup_probe", level.startup_probe)
    yield from _program(f"{prefix}command", level.command)


def _probe(path: str, probe: StartupProbe) -> Iterator[Problem]:
    looks = {"exec": probe.exec_, "tcp": probe.tcp, "file": probe.file}
    given = [name for name, look in looks.items() if look is not None]
    if len(given) > 1:
        yield Problem(path, f"has {' and '.join(given)}", "give exactly one of exec, tcp and file")
    if probe.http is not None and (probe.tcp is None or not probe.http.startswith("/")):
        text = f"{probe.http} is no path on a server" if probe.tcp else "stands without a port"
        yield Problem(f"{path}.http", text, "write {tcp: 8080, http: /healthz}")
    yield from _program(f"{path}.exec", probe.exec_)


def _program(path: str, command: Sequence[str] | None) -> Iterator[Problem]:
    if command is not None and not (command and command[0]):
        yield Problem(path, "is empty", "give a program to run")


def _env(path: str, env: Mapping[str, str]) -> Iterator[Problem]:
    characters = sum(len(name) + len(value) for name, value in env.items())
    if characters > MAX_ENV_CHARACTERS:
        text = f"{characters:,} characters in names and values, {MAX_ENV_CHARACTERS:,} are allowed"
        yield Problem(path, text, "put large values into a file")


def _leads_inside(link: str) -> bool:
    return not link.startswith("/") and {*link.strip("/").split("/")}.isdisjoint(("", ".", ".."))


def _mounts(
    path: str, mounts: Sequence[Mount], inherited: Sequence[Mount] = ()
) -> Iterator[Problem]:
    seen = {mount.destination: mount.source for mount in inherited}
    for number, mount in enumerate(mounts):
        where = mount.destination
        last = mount.last_component
        place = f"{path}[{number}]"
        if mount.path is None and (last in ("", ".", "..") or last.endswith(":")):
            text = f"{mount.source} has no name to be mounted under"
            yield Problem(place, text, "give it a path")
        elif mount.path is not None and ".." in mount.path.split("/"):
            text = f"{mount.path} leads out of where it begins"
            yield Problem(f"{place}.path", text, "write it without ..")
        elif mount.link is not None and not _leads_inside(mount.link):
            text = f"{mount.link} is no path below where processes start"
            yield Problem(f"{place}.link", text, "write data, or data/input.txt")
        elif where in _TAKEN:
            text = f"{mount.source} cannot be mounted over {where}"
            yield Problem(place, text, "give it another path")
        elif where in seen:
            text = f"{seen[where]} and {mount.source} are both mounted at {where}"
            yield Problem(place, text, "give one of them another path")
        seen.setdefault(where, mount.source)


def _anywhere(*fields: str) -> tuple[str, ...]:
    """Fields that the job and its groups have alike."""
    return (*fields, *(f"node_groups.{field}" for field in fields))


_SIZES = ("nodes", *(f"node_groups.{name}" for name in ("nodes", "replicas", "max_replicas")))
_PROGRAM = ("artifact", "git", *_anywhere("command"))
#: Each rule, and what it cannot be judged without. Where there is nothing, it is about things that
#: are there and exclude each other: true even of a spec that was read in part.
_RULES: tuple[tuple[Callable[[JobSpec], Iterator[Problem]], tuple[str, ...]], ...] = (
    (source_gaps, (*_PROGRAM, "entrypoint")),
    (lost_programs, (*_PROGRAM, "node_groups.working_dir", *_anywhere("image"))),
    (_blind_probes, _anywhere("startup_probe")),
    (_missing, (*_PROGRAM, "framework", *_anywhere("env"))),
    (bad_variables, _PROGRAM),
    (_numbers, (*_SIZES, *_anywhere("min_success"))),
    (policy_gaps, ("node_groups.name", "success", "failure", *_anywhere("min_success"))),
    (bad_hostnames, (*_SIZES, "name", "node_groups.name", "node_groups.hostname")),
    (_job, ()),
    (_duplicates, ()),
    (source_conflicts, ("artifact", "entrypoint")),
    (_groups, ()),
    (order_conflicts, ("node_groups.name", "node_groups.depends_on")),
    (policy_conflicts, ("failure.rules",)),
    (name_conflicts, ()),
    (too_long_commands, ()),
)
