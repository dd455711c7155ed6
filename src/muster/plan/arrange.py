"""A spec in the shape its framework gives it: a main node of its own, who decides about success,
and who can be replaced while others live. Pure.

What comes out is a spec as its owner could have written it; arranging that changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Role, RoleSetup, Setup
from muster.frameworks.registry import get_framework, read_options
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.oci_variables import says_command
from muster.spec.placeholders import as_label
from muster.spec.policies import DependsOn, FailureRule, ReasonName

#: What the first node is called where it was one of a group.
MAIN = "main"
#: The rule by which a node that others can do without for a while is started again alone.
REPLACEABLE = "others-go-on"
KILLED = "others-go-on-killed"
#: What a node fails of that has not failed by itself, but for signals.
_LOST: tuple[ReasonName, ...] = (
    "out_of_memory",
    "node_lost",
    "startup_timeout",
    "hang",
    "not_started",
    "output_lost",
)
_SIGNALS = ("SIGKILL", "SIGABRT", "SIGBUS", "SIGSEGV")
#: What is about a group's program -> why it means nothing of a group without one.
_OF_PROGRAMS = {
    "command": "{framework} says itself what this group runs",
    "startup_probe": "{framework} says itself when this group is ready",
    "hang_timeout": "this group only serves the others, and may have nothing to say",
    "min_success": "this group only serves the others: it ends when the run does",
}


class Arranged(Struct, frozen=True):
    """spec: in normal form, and as its framework wants it. setup: what that asks for."""

    spec: JobSpec
    setup: Setup

    def role(self, group: str) -> RoleSetup:
        return _role(self.setup.roles, group)


def arrange(spec: JobSpec) -> Arranged:
    """A spec in normal form (`spec.resolve`), arranged. Raises InvalidInput if the framework
    refuses it."""
    framework = get_framework(spec.framework)
    options = read_options(framework, spec.framework_options)
    parted = _with_main(spec) if framework.has_main(options) else spec
    setup = framework.setup(_cluster(parted, options))
    problems = list(_program_problems(parted, setup.roles))
    rest = parted.node_groups[1].name if parted is not spec else None
    awaited = _with_awaited(parted, setup.roles, rest, problems)
    if problems:
        raise InvalidInput(*problems)
    return Arranged(_with_replacement(_with_success(awaited, setup.roles), setup.roles), setup)


def _cluster(spec: JobSpec, options: Struct) -> Cluster:
    roles, rank = [], 0
    for group in spec.node_groups:
        size, most = (count * group.nodes for count in (group.replicas, group.most_replicas))
        roles.append(Role(group.name, rank, size, group.env, most))
        rank += most
    return Cluster(tuple(roles), spec.processes_per_node, options)


def _with_main(spec: JobSpec) -> JobSpec:
    """With the first node in a group by itself. Raises InvalidInput if there cannot be one."""
    first, *others = spec.node_groups
    if first.nodes * first.most_replicas == 1:
        return spec
    if first.most_replicas > 1:
        text = f"the first node of {spec.framework} is unlike the others; it cannot be one of many"
        hint = "put a group with one node before it"
        raise InvalidInput(Problem(f"node_groups[{first.name}].replicas", text, hint))
    rival = next((one.name for one in spec.node_groups if as_label(one.name) == MAIN), None)
    if rival is not None:
        text = f"{spec.framework} needs its first node to be unlike the others"
        hint = f"write group {rival} first, with one node"
        raise InvalidInput(Problem(f"node_groups[{first.name}].nodes", text, hint))
    main = replace(first, name=MAIN, nodes=1)
    rest = replace(first, nodes=first.nodes - 1)
    both = {first.name: (MAIN, first.name)}
    return replace(
        spec,
        node_groups=tuple(_depending(group, both) for group in (main, rest, *others)),
        success=replace(spec.success, groups=tuple(_each(spec.success.groups, both))),
        failure=replace(
            spec.failure,
            rules=tuple(
                replace(rule, groups=tuple(_each(rule.groups, both))) for rule in spec.failure.rules
            ),
        ),
    )


def _each(names: Iterable[str], both: Mapping[str, tuple[str, ...]]) -> Iterable[str]:
    return dict.fromkeys(part for name in names for part in both.get(name, (name,)))


def _depending(group: NodeGroup, both: Mapping[str, tuple[str, ...]]) -> NodeGroup:
    depends = tuple(
        DependsOn(group=part, status=other.status)
        for other in group.depends_on
        for part in both.get(other.group, (other.group,))
    )
    return replace(group, depends_on=depends)


def _program_problems(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> Iterator[Problem]:
    """If a group that only serves was given a program of its own, or what is about one, or one
    that does not only serve has none."""
    first = spec.node_groups[0]
    for group in spec.node_groups:
        path = f"node_groups[{group.name}]"
        if not _role(roles, group.name).program:
            for name, why in _OF_PROGRAMS.items():
                if getattr(group, name) not in (None, getattr(first, name)):
                    text = why.format(framework=spec.framework)
                    yield Problem(f"{path}.{name}", text, "leave it out")
        elif group.command is None and spec.artifact is None and spec.git is None:
            if says_command(group.env):
                continue  # and what it says cannot be read, which was said
            hint = "give it a command, or the job an artifact"
            yield Problem(path, f"nothing to run in group {group.name}", hint)


def _with_awaited(
    spec: JobSpec, roles: Mapping[str, RoleSetup], rest: str | None, problems: list[Problem]
) -> JobSpec:
    """With nobody waiting for the success of nodes that only serve: they do not end before the
    run. rest: the group whose owner did not know it to be one. problems: extended if an owner
    asked for just that.
    """

    def awaited(path: str, name: str) -> bool:
        if _role(roles, name).program:
            return True
        if name != rest:
            text = f"group {name} only serves the others: it ends when the run does"
            problems.append(Problem(path, text, "leave it out"))
        return False

    wanted = tuple(name for name in spec.success.groups if awaited("success.groups", name))
    groups = []
    for group in spec.node_groups:
        path = f"node_groups[{group.name}].depends_on"
        depends = tuple(
            other
            for other in group.depends_on
            if other.status == "ready" or awaited(path, other.group)
        )
        groups.append(replace(group, depends_on=depends))
    success = replace(spec.success, groups=wanted)
    return replace(spec, node_groups=tuple(groups), success=success)


def _role(roles: Mapping[str, RoleSetup], group: str) -> RoleSetup:
    return roles.get(group) or RoleSetup()


def _with_success(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> JobSpec:
    deciding = tuple(group.name for group in spec.node_groups if _role(roles, group.name).decides)
    if spec.success.groups or len(deciding) == len(spec.node_groups):
        return spec
    return replace(spec, success=replace(spec.success, groups=deciding))


def _with_replacement(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> JobSpec:
    known = any(rule.name in (REPLACEABLE, KILLED) for rule in spec.failure.rules)
    if spec.failure.action is not None or not spec.failure.max_restarts or known:
        return spec
    names = {group.name: _role(roles, group.name) for group in spec.node_groups}
    replaced = {name: role for name, role in names.items() if role.replaceable}
    always = tuple(name for name, role in replaced.items() if not role.fails_for_all)
    lost = tuple(name for name, role in replaced.items() if role.fails_for_all)
    rule = partial(FailureRule, action="restart_node")
    rules = [rule(name=REPLACEABLE, groups=always)] if always else []
    if lost:
        rules.append(rule(name=REPLACEABLE, groups=lost, reasons=_LOST))
        rules.append(rule(name=KILLED, groups=lost, signals=_SIGNALS))
    return replace(spec, failure=replace(spec.failure, rules=(*spec.failure.rules, *rules)))
