"""What a run would run, in lines, for `muster explain`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec.structs import replace

from muster.describe.environment import explained_environment
from muster.describe.node_commands import TemplateText, ports, services
from muster.describe.policy import policy_sentences
from muster.describe.words import plural
from muster.plan.environment import Origin
from muster.plan.model import FilePlan, GroupPlan, Parameters, RunPlan
from muster.secrets import hidden_words, hide, redacted

#: Sets of a sample that are listed.
_MOST_SETS = 10
#: Files of a mount that are named.
_MAX_FILES = 5


def with_described_addresses(plan: RunPlan) -> RunPlan:
    """The plan, with descriptions of addresses that are known when nodes have hosts."""
    if all(node.address for node in plan.nodes):
        return plan
    nodes = [
        node if node.address else replace(node, address=f"(the address of {node.fqdn})")
        for node in plan.nodes
    ]
    return replace(plan, nodes=tuple(nodes))


def plan_lines(
    plan: RunPlan,
    limits: Mapping[str, str],
    memory: Mapping[str, int],
    engine: Iterable[str] = (),
    first: Iterable[str] = (),
) -> Iterator[str]:
    """The job, its code, network, ports and policy, then each group.

    limits, memory, engine: see `Engine.limits`, `shares_of_memory` and `explain`. first: lines
    after the heading.
    """
    yield f"job {plan.job_name}: {_size(plan)}"
    yield from first
    if plan.workload is not None:
        yield from _workload(plan, engine)
        return
    yield from _sources(plan)
    yield f"framework: {plan.framework}"
    yield f"engine: {plan.engine}"
    yield from (f"  {line}" for line in engine)
    yield f"network: {plan.network} ({plan.network_reason})"
    yield from (f"port {line}" for line in ports(plan))
    yield from policy_sentences(plan.policy)
    yield from (f"note: {note}" for note in plan.notes)
    for group in plan.groups:
        yield ""
        yield from _group(plan, group, limits.get(group.name, ""), memory[group.name])


def _workload(plan: RunPlan, engine: Iterable[str]) -> Iterator[str]:
    """A plan whose nodes run what is in a manifest of the user's."""
    yield f"engine: {plan.engine}"
    yield from (f"  {line}" for line in engine)
    yield from (f"note: {note}" for note in plan.notes)
    for group in plan.groups:
        yield f"group {group.name}: {plural(group.size, 'node')}, image {group.image}"


def _sources(plan: RunPlan) -> Iterator[str]:
    """The repository of the code and the packages to install."""
    git = plan.artifact.git if plan.artifact else None
    if git is not None:
        branch = f", branch {git.branch}" if git.branch else ""
        folder = f", folder {git.path}" if git.path else ""
        yield f"code: {git.url}{branch}, commit {git.commit}{folder}"
    if plan.environment is not None:
        if plan.environment.conda is not None:
            yield "installs: a conda environment"
        for line in plan.environment.requirements:
            yield f"installs: {redacted(line)}"


def _group(plan: RunPlan, group: GroupPlan, limits: str, memory: int) -> Iterator[str]:
    policy = plan.policy.group_of(group.first_rank)
    decides = ""
    if group.role.decides and not plan.policy.success.any_replica:
        minimum = min(policy.min_success, policy.initial)
        decides = f", {_required(minimum, policy.initial, group.nodes)}"
    nodes = plural(policy.initial * group.nodes, "node")
    if group.is_array:
        of = plural(group.nodes, "node")
        nodes = f"{_counted(policy.initial, 'replica')} of {of}, {group.parallelism:,} at once"
    yield f"group {group.name}: {nodes}{decides}"
    if group.replicas > policy.initial and not group.is_array:
        yield f"  can be scaled to {group.replicas} replicas while the run is in progress"
    if limits:
        yield f"  {limits}"
    node = plan.first_node(group)
    values: dict[str, str] = {}
    written = len(group.node_args)
    if group.is_array:
        first = policy.replica_ranks(policy.numbers[0].start).start
        node = plan.node(first, plan.nodes.index(node))
    if plan.parameters is not None and plan.parameters.group == group.name:
        from muster.plan.parameters import with_parameters  # few runs have parameters

        given = plan.parameters.values(node.replica)
        values = {name: hide(name, value) for name, value in given.items()}
        yield from _parameters(plan.parameters, policy.numbers)
        group = with_parameters(group, values)
    else:
        group = plan.group_for(node)
    shown = TemplateText(plan, node, memory, values)
    yield from (f"  {line}" for line in services(group, shown))
    if group.role.program:
        yield from _program(plan, group, shown, written)
    if group.in_place is not None:
        yield f"  directory: {group.in_place} (not a copy)"
    for mount in group.mounts:
        what = f"files {_names(mount.files)}" if mount.files else mount.source
        if mount.sub_path is not None:
            what = mount.sub_path if mount.files else f"{mount.sub_path} of {what}"
        yield f"  mounts {what} at {mount.path} (${mount.variable})"
    for one in group.extra_containers:
        words = shlex.join(hidden_words([*(one.command or ()), *(one.args or ())]))
        runs = f", runs {words}" if words else ""
        yield f"  {one.role} container {one.name}: {one.image}{runs}"
    yield from _variables(plan, group, shown)


def _names(files: Sequence[FilePlan]) -> str:
    names = [file.path for file in files]
    more = f" and {len(names) - _MAX_FILES} more" if len(names) > _MAX_FILES else ""
    return f"{', '.join(names[:_MAX_FILES])}{more}"


def _size(plan: RunPlan) -> str:
    """The number of nodes, or of replicas if all groups are arrays."""
    if all(group.is_array for group in plan.groups):
        replicas = sum(plan.policy.group_of(group.first_rank).initial for group in plan.groups)
        return _counted(replicas, "replica")
    return plural(plan.policy.initial_size, "node")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"


def _parameters(parameters: Parameters, numbers: Sequence[range]) -> Iterator[str]:
    """The parameters of an array, and some of its sets: the first ones and the last. numbers: of
    the replicas that run."""
    from muster.spec.arrays import variable_of  # few runs have parameters

    count = _counted(len(parameters), "parameter set")
    sample = "" if parameters.sample is None else f", a sample with seed {parameters.seed}"
    yield f"  array: {count} of {', '.join(parameters.names)}{sample}"
    total = sum(map(len, numbers))
    shown = _MOST_SETS if parameters.sample is not None else 1
    chosen = [*islice(chain.from_iterable(numbers), min(shown, total))]
    if total > shown + 1:
        yield from (_parameter_set(parameters, replica) for replica in chosen)
        yield "  ..."
        chosen = []
    if total > shown:
        chosen.append(numbers[-1][-1])
    yield from (_parameter_set(parameters, replica) for replica in chosen)
    yield f"  variables: {', '.join(variable_of(name) for name in parameters.names)}"


def _parameter_set(parameters: Parameters, replica: int) -> str:
    values = parameters.values(replica)
    return f"  replica {replica}: {shlex.join(f'{n}={hide(n, v)}' for n, v in values.items())}"


def _required(minimum: int, replicas: int, nodes: int) -> str:
    """How many of a group's replicas must succeed. nodes: of each replica."""
    if minimum == 0:
        return "no replica has to succeed"
    if replicas == 1:
        return "which must succeed" if nodes == 1 else "which must all succeed"
    most = f"all {replicas:,}" if minimum == replicas else f"at least {minimum:,} of {replicas:,}"
    return f"{most} replicas must succeed"


def _program(plan: RunPlan, group: GroupPlan, shown: TemplateText, written: int) -> Iterator[str]:
    """The command. written: how many `node_args` the job has; others are parameters."""
    code = plan.artifact
    command = group.command or ((plan.entrypoint_of(group) or code.file_name,) if code else ())
    own = [shown.text(word) for word in group.node_args]
    words = shown.command(group.role.launcher, hidden_words([*command, *group.args, *own]))
    processes = plan.processes_of(group.first_rank)
    times = f", {processes} processes on each node" if processes > 1 else ""
    yield f"  runs {_of_image(plan, group)}{words}{times}"
    if written:
        differing = shlex.join(hidden_words(group.node_args[:written]))
        yield f"  arguments that differ on each node: {differing}"
    if group.command is not None:
        from muster.spec.shell import script_index

        is_script = script_index(command) is not None
        yield f"  {'shell command' if is_script else 'started directly, without a shell'}"


def _of_image(plan: RunPlan, group: GroupPlan) -> str:
    """The part of a command that only the image knows."""
    if not plan.runs_image(group):
        return ""
    has_arguments = group.command or group.args or group.node_args
    of = f"of image {group.image}"
    return f"the ENTRYPOINT {of} with " if has_arguments else f"the ENTRYPOINT and CMD {of}"


def _variables(plan: RunPlan, group: GroupPlan, shown: TemplateText) -> Iterator[str]:
    settings = explained_environment(plan, group, shown.text)
    if settings:
        owner = "its first process" if group.role.program else "each service"
        yield f"  environment of {owner}, in addition to every node's:"
    for name, setting in settings.items():
        from_job = setting.origin in (Origin.ENV, Origin.NODE_ENV)
        value = hide(name, setting.value) if from_job else setting.value
        unused = [origin.value for origin in setting.overridden if origin in _SHOWN_IF_UNUSED]
        by = "set by " if setting.origin in _SETTERS else ""
        instead = f", not {' or '.join(unused)}" if unused else ""
        yield f"    {name}={value}  # {by}{setting.origin.value}{instead}"


_SETTERS = (Origin.MUSTER, Origin.ENGINE, Origin.FRAMEWORK)
#: Layers of a job or framework whose values are mentioned although another one takes precedence.
_SHOWN_IF_UNUSED = (Origin.FRAMEWORK_DEFAULT, Origin.ENV, Origin.NODE_ENV)
