"""What a run would run, in lines, for `muster explain`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping

from muster.describe.environment import explained_environment
from muster.describe.node_commands import TemplateText, ports, services
from muster.describe.policy import policy_sentences
from muster.describe.words import plural
from muster.plan.environment import Origin
from muster.plan.model import GroupPlan, RunPlan
from muster.secrets import hidden_words, hide, redacted


def plan_lines(
    plan: RunPlan,
    limits: Mapping[str, str],
    memory: Mapping[str, int],
    first: Iterable[str] = (),
) -> Iterator[str]:
    """The job, its code, network, ports and policy, then each group.

    limits, memory: see `Engine.limits` and `Engine.shares_of_memory`. first: lines after the
    heading.
    """
    yield f"job {plan.job_name}: {plural(plan.policy.initial_size, 'node')}"
    yield from first
    yield from _sources(plan)
    yield f"framework: {plan.framework}"
    yield f"engine: {plan.engine}"
    yield f"network: {plan.network} ({plan.network_reason})"
    yield from (f"port {line}" for line in ports(plan))
    yield from policy_sentences(plan.policy)
    yield from (f"note: {note}" for note in plan.notes)
    for group in plan.groups:
        yield ""
        yield from _group(plan, group, limits.get(group.name, ""), memory[group.name])


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
    yield f"group {group.name}: {plural(policy.initial * group.nodes, 'node')}{decides}"
    if group.replicas > policy.initial:
        yield f"  can be scaled to {group.replicas} replicas while the run is in progress"
    if limits:
        yield f"  {limits}"
    shown = TemplateText(plan, group, memory)
    yield from (f"  {line}" for line in services(group, shown))
    if group.role.program:
        yield from _program(plan, group, shown)
    if group.in_place is not None:
        yield f"  directory: {group.in_place} (not a copy)"
    for mount in group.mounts:
        yield f"  mounts {mount.source} at {mount.path} (${mount.variable})"
    yield from _variables(plan, group, shown)


def _required(minimum: int, replicas: int, nodes: int) -> str:
    """How many of a group's replicas must succeed. nodes: of each replica."""
    if minimum == 0:
        return "no replica has to succeed"
    if replicas == 1:
        return "which must succeed" if nodes == 1 else "which must all succeed"
    most = f"all {replicas}" if minimum == replicas else f"at least {minimum} of {replicas}"
    return f"{most} replicas must succeed"


def _program(plan: RunPlan, group: GroupPlan, shown: TemplateText) -> Iterator[str]:
    code = plan.artifact
    command = group.command or ((plan.entrypoint_of(group) or code.file_name,) if code else ())
    own = [shown.text(word) for word in group.node_args]
    words = shown.command(group.role.launcher, hidden_words([*command, *group.args, *own]))
    processes = plan.processes_of(group.first_rank)
    times = f", {processes} processes on each node" if processes > 1 else ""
    yield f"  runs {words}{times}"
    if own:
        yield f"  arguments that differ on each node: {shlex.join(hidden_words(group.node_args))}"
    if group.command is not None:
        is_shell = os.path.basename(command[0]) in ("sh", "bash", "dash", "zsh", "ksh")
        yield f"  {'shell command' if is_shell else 'started directly, without a shell'}"


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
