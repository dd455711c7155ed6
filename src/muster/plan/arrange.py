"""Adapt a spec to its framework: a separate main node, which groups decide about success, and which
nodes can be replaced while others run. Pure.

The result is a spec that a user could have written; arranging it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Role, RoleSetup, Setup
from muster.frameworks.registry import get_framework, read_options
from muster.spec.models import DEFAULT_FRAMEWORK, JobSpec, NodeGroup
from muster.spec.oci_variables import has_command
from muster.spec.placeholders import as_label
from muster.spec.policies import DependsOn, FailureRule, ReasonName

#: Group of the first node if it was split off its group.
MAIN = "main"
#: Rules that restart a single node while the others continue.
REPLACEABLE = "replace-node"
KILLED = "replace-killed-node"
PREEMPTED = "replace-preempted-node"
_REPLACING = (REPLACEABLE, KILLED, PREEMPTED)
#: The same, under the names that earlier versions gave them: specs may have them.
_FORMER_NAMES = ("others-go-on", "others-go-on-killed")
#: Reasons for which a node is replaced, besides signals: its program did not fail by itself.
_LOST: tuple[ReasonName, ...] = (
    "out_of_memory",
    "node_lost",
    "startup_timeout",
    "hang",
    "unhealthy",
    "preflight",
    "not_started",
    "output_lost",
)
_SIGNALS = ("SIGKILL", "SIGABRT", "SIGBUS", "SIGSEGV")
#: Settings of a group's program -> why a group without a program cannot have them.
_OF_PROGRAMS = {
    "command": "{framework} sets what this group runs",
    "startup_probe": "{framework} sets when this group is ready",
    "liveness_probe": "{framework} watches this group",
    "after_start": "this group only serves the others",
    "before_stop": "this group only serves the others",
    "hang_timeout": "this group only serves the others, and may write no output",
    "min_success": "this group only serves the others: it ends when the run does",
}


class Arranged(Struct, frozen=True):
    """A spec adapted to its framework."""

    spec: JobSpec
    """In normal form."""
    setup: Setup
    """What the framework needs for it."""

    def role(self, group: str) -> RoleSetup:
        return _role(self.setup.roles, group)


def arrange(spec: JobSpec) -> Arranged:
    """A spec in normal form (`spec.resolve`), arranged. Raises InvalidInput if the framework
    refuses it."""
    framework = get_framework(spec.framework)
    options = read_options(framework, spec.framework_options)
    _check_arrays(spec)
    with_main = _with_main(spec) if framework.has_main(options) else spec
    setup = _setup(framework, with_main, options)
    problems = list(_program_problems(with_main, setup.roles))
    remaining_group = with_main.node_groups[1].name if with_main is not spec else None
    awaited = _without_waits_for_services(with_main, setup.roles, remaining_group, problems)
    if problems:
        raise InvalidInput(*problems)
    return Arranged(_with_replacement(_with_success(awaited, setup.roles), setup.roles), setup)


def without_replacement(arranged: Arranged) -> Arranged:
    """Without the rules that `arrange` adds to replace single nodes, for engines that cannot."""
    failure = arranged.spec.failure
    rules = tuple(rule for rule in failure.rules if rule.name not in _REPLACING)
    spec = replace(arranged.spec, failure=replace(failure, rules=rules))
    return replace(arranged, spec=spec)


def first_ranks(spec: JobSpec) -> list[int]:
    """The rank of each group's first node. Replicas that scaling may add have ranks as well."""
    sizes = (group.nodes * group.most_replicas for group in spec.node_groups)
    return list(accumulate(sizes, initial=0))[:-1]


def _check_arrays(spec: JobSpec) -> None:
    """Raises InvalidInput if other groups would belong to the cluster of an array's replica."""
    array = next((group for group in spec.node_groups if group.is_array), None)
    if array is None or len(spec.node_groups) == 1 or spec.framework == DEFAULT_FRAMEWORK:
        return
    other = next(group for group in spec.node_groups if group is not array)
    text = f"with {spec.framework}, each replica of the array {array.name} is a cluster of its own"
    hint = f"leave out group {other.name}, or use the framework {DEFAULT_FRAMEWORK}"
    raise InvalidInput(Problem(f"node_groups[{other.name}]", text, hint))


def _setup(framework: Framework, spec: JobSpec, options: Struct) -> Setup:
    """What the framework needs for the groups; for an array, as for one of its replicas."""
    arrays = [group.name for group in spec.node_groups if group.is_array]
    if not arrays:
        return framework.setup(_cluster(spec, options))
    setups = [framework.setup(_replica(spec, name, options)) for name in arrays]
    if len(arrays) == len(spec.node_groups) == 1:
        return setups[0]
    # several groups have the framework `generic`, which has variables only
    roles = {name: RoleSetup(env=one.env) for name, one in zip(arrays, setups, strict=True)}
    others = replace(
        spec, node_groups=tuple(group for group in spec.node_groups if not group.is_array)
    )
    rest = framework.setup(_cluster(others, options)) if others.node_groups else setups[0]
    return replace(rest, roles=roles)


def _replica(spec: JobSpec, name: str, options: Struct) -> Cluster:
    """One replica of an array."""
    (group,) = (group for group in spec.node_groups if group.name == name)
    role = Role(name, 0, group.nodes, group.env)
    return Cluster((role,), spec.processes_per_node, options)


def _cluster(spec: JobSpec, options: Struct) -> Cluster:
    roles = []
    for group, rank in zip(spec.node_groups, first_ranks(spec), strict=True):
        size, most = (count * group.nodes for count in (group.replicas, group.most_replicas))
        roles.append(Role(group.name, rank, size, group.env, most))
    return Cluster(tuple(roles), spec.processes_per_node, options)


def _with_main(spec: JobSpec) -> JobSpec:
    """The spec with the first node in a separate group. Raises InvalidInput if that is not
    possible."""
    first, *others = spec.node_groups
    if first.nodes * first.most_replicas == 1 or (first.is_array and first.nodes == 1):
        return spec
    if first.is_array:
        text = f"{spec.framework}'s first node has its own role, so each replica can have one node"
        hint = "write nodes: 1, or start a run for each parameter set"
        raise InvalidInput(Problem(f"node_groups[{first.name}].nodes", text, hint))
    if first.most_replicas > 1:
        text = f"{spec.framework}'s first node has its own role; it cannot be one of many"
        hint = "put a group with one node before it"
        raise InvalidInput(Problem(f"node_groups[{first.name}].replicas", text, hint))
    conflicting = next((one.name for one in spec.node_groups if as_label(one.name) == MAIN), None)
    if conflicting is not None:
        text = f"{spec.framework}'s first node has its own role"
        hint = f"write group {conflicting} first, with one node"
        raise InvalidInput(Problem(f"node_groups[{first.name}].nodes", text, hint))
    main = replace(first, name=MAIN, nodes=1)
    rest = replace(first, nodes=first.nodes - 1)
    replacements = {first.name: (MAIN, first.name)}
    return replace(
        spec,
        node_groups=tuple(
            _with_replaced_dependencies(group, replacements) for group in (main, rest, *others)
        ),
        success=replace(
            spec.success, groups=tuple(_replaced_names(spec.success.groups, replacements))
        ),
        failure=replace(
            spec.failure,
            rules=tuple(
                replace(rule, groups=tuple(_replaced_names(rule.groups, replacements)))
                for rule in spec.failure.rules
            ),
        ),
    )


def _replaced_names(
    names: Iterable[str], replacements: Mapping[str, tuple[str, ...]]
) -> Iterable[str]:
    return dict.fromkeys(part for name in names for part in replacements.get(name, (name,)))


def _with_replaced_dependencies(
    group: NodeGroup, replacements: Mapping[str, tuple[str, ...]]
) -> NodeGroup:
    depends = tuple(
        DependsOn(group=part, status=other.status)
        for other in group.depends_on
        for part in replacements.get(other.group, (other.group,))
    )
    return replace(group, depends_on=depends)


def _program_problems(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> Iterator[Problem]:
    """Groups that only serve and have a program or settings of one, and other groups without a
    program."""
    first = spec.node_groups[0]
    for group in spec.node_groups:
        path = f"node_groups[{group.name}]"
        if not _role(roles, group.name).program:
            for name, why in _OF_PROGRAMS.items():
                if getattr(group, name) not in (None, getattr(first, name)):
                    text = why.format(framework=spec.framework)
                    yield Problem(f"{path}.{name}", text, "leave it out")
        elif group.command is None and spec.artifact is None and spec.git is None:
            if group.image is not None or has_command(group.env):
                continue  # the image's own runs; or it cannot be read, which is reported
            hint = "give it a command or an image, or the job an artifact"
            yield Problem(path, f"nothing to run in group {group.name}", hint)


def _without_waits_for_services(
    spec: JobSpec,
    roles: Mapping[str, RoleSetup],
    remaining_group: str | None,
    problems: list[Problem],
) -> JobSpec:
    """The spec without waits for the success of groups that only serve, since they end with the
    run.

    remaining_group: the rest of the group whose first node became the main node; the user did not
    write it as a separate group. problems: extended for waits that the user wrote.
    """

    def awaited(path: str, name: str) -> bool:
        if _role(roles, name).program:
            return True
        if name != remaining_group:
            text = f"group {name} only serves the others: it ends when the run does"
            problems.append(Problem(path, text, "leave it out"))
        return False

    awaited_groups = tuple(name for name in spec.success.groups if awaited("success.groups", name))
    groups = []
    for group in spec.node_groups:
        path = f"node_groups[{group.name}].depends_on"
        depends = tuple(
            other
            for other in group.depends_on
            if other.status == "ready" or awaited(path, other.group)
        )
        groups.append(replace(group, depends_on=depends))
    success = replace(spec.success, groups=awaited_groups)
    return replace(spec, node_groups=tuple(groups), success=success)


def _role(roles: Mapping[str, RoleSetup], group: str) -> RoleSetup:
    return roles.get(group) or RoleSetup()


def _with_success(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> JobSpec:
    deciding = tuple(group.name for group in spec.node_groups if _role(roles, group.name).decides)
    if spec.success.groups or len(deciding) == len(spec.node_groups):
        return spec
    return replace(spec, success=replace(spec.success, groups=deciding))


def _with_replacement(spec: JobSpec, roles: Mapping[str, RoleSetup]) -> JobSpec:
    known = any(rule.name in (*_REPLACING, *_FORMER_NAMES) for rule in spec.failure.rules)
    if spec.failure.action is not None or not spec.failure.max_restarts or known:
        return spec
    names = {group.name: _role(roles, group.name) for group in spec.node_groups}
    replaced = {name: role for name, role in names.items() if role.replaceable}
    always = tuple(name for name, role in replaced.items() if not role.fails_for_all)
    lost = tuple(name for name, role in replaced.items() if role.fails_for_all)
    rule = partial(FailureRule, action="restart_node")
    rules = [rule(name=REPLACEABLE, groups=always)] if always else []
    if lost:
        rules.append(rule(name=PREEMPTED, groups=lost, reasons=("preempted",), count=False))
        rules.append(rule(name=REPLACEABLE, groups=lost, reasons=_LOST))
        rules.append(rule(name=KILLED, groups=lost, signals=_SIGNALS))
    return replace(spec, failure=replace(spec.failure, rules=(*spec.failure.rules, *rules)))
