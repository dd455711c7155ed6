"""`muster explain`."""

from __future__ import annotations

import os
import shlex
import tarfile
from collections.abc import Iterable, Iterator
from typing import Any

import click

from muster.cli.output import print_json, print_table
from muster.cli.policy import sentences
from muster.cli.run import draft_from
from muster.cli.run import run as _run
from muster.cli.serving import Shown, around, ports
from muster.cli.settings import changes
from muster.cli.terminal import echo
from muster.drafting import Draft
from muster.engines.local.machine import held_to, this_machine
from muster.plan.model import ArtifactPlan, GroupPlan, RunPlan
from muster.secrets import hidden_words, hide, redacted
from muster.storage.artifacts import stored_path
from muster.storage.entrypoint import kind_of
from muster.storage.home import Home

_IGNORED = {"detach", "as_json"}


@click.command(
    cls=type(_run),
    params=[p for p in _run.params if p.name not in _IGNORED],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def explain(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """What `muster run` with the same arguments would run. Starts nothing."""
    from muster.client.client import Client

    client = Client()
    draft = draft_from(client, ctx.meta["after"], **options)
    sent = list(_sent_along(client.service.home, draft))
    if draft.new_job:
        client.service.discard(draft.job)
    plan = draft.plan
    if as_json:
        print_json(plan.to_json())
        return
    describe(plan, [*sent, *(f"changed for this run: {line}" for line in changes(draft))])


def describe(plan: RunPlan, sent: Iterable[str] = ()) -> None:
    """Print what would run. sent: what is to be said first, such as what goes along with a
    script, in sentences."""
    _describe(plan, sent)
    for group in plan.groups:
        _describe_group(plan, group)
    echo()
    wanted = [not node.parked for node in plan.policy.first_nodes()]
    rows = [
        (str(n.rank), n.group, n.fqdn, n.address, n.node_id) for n in plan.nodes if wanted[n.rank]
    ]
    print_table(("RANK", "GROUP", "NAME", "ADDRESS", "NODE ID"), rows)


def _sent_along(home: Home, draft: Draft) -> Iterator[str]:
    """What goes along with a script because it imports it."""
    script, code = draft.spec.artifact, draft.plan.artifact
    if script is None or code is None or code.kind != "archive" or not os.path.isfile(script):
        return
    name = os.path.basename(script)
    if kind_of(name) == "archive":
        return
    with tarfile.open(stored_path(home, code.sha256)) as packed:
        files = [file for file in packed.getnames() if file != name]
    tops = {file.partition("/")[0] + ("/" if "/" in file else "") for file in files}
    shown, count = ", ".join(sorted(tops)), _count(len(files), "file")
    yield f"code: {name}, with what it imports from its folder: {shown} ({count})"


def _describe(plan: RunPlan, sent: Iterable[str]) -> None:
    echo(f"job {plan.job_name}: {_count(plan.policy.initial_size, 'node')}")
    for line in sent:
        echo(line)
    for line in _sources(plan):
        echo(line)
    echo(f"framework: {plan.framework}")
    echo(f"network: {plan.network} ({plan.network_reason})")
    for line in ports(plan):
        echo(f"port {line}")
    for sentence in sentences(plan.policy):
        echo(sentence)
    for note in plan.notes:
        echo(f"note: {note}")


def _sources(plan: RunPlan) -> Iterator[str]:
    """Where the code is from, and what it needs, where that is not at hand."""
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


def _describe_group(plan: RunPlan, group: GroupPlan) -> None:
    policy = plan.policy.group_of(group.first_rank)
    minimum = min(policy.min_success, policy.initial)
    least = f", {minimum} of its {_count(policy.initial, 'replica')} must succeed"
    decides = least if group.role.decides else ""
    echo(f"\ngroup {group.name}: {_count(policy.initial * group.nodes, 'node')}{decides}")
    if group.replicas > policy.initial:
        echo(f"  may be scaled to {group.replicas} replicas while the run goes on")
    if held := held_to(group.resources, this_machine()):
        echo(f"  {held}")
    shown = Shown(plan, group)
    for line in around(group, shown):
        echo(f"  {line}")
    if group.role.program:
        _describe_program(plan, group, shown)
    for mount in group.mounts:
        echo(f"  shows {mount.source} at {mount.path} (${mount.variable})")
    variables = [
        *((name, value) for name, value in group.env.items()),
        *((name, shown.text(template)) for name, template in group.node_env.items()),
    ]
    found = [f"    {name}={hide(name, value)}" for name, value in variables]
    found += [f"    {k}={shown.text(template)}" for k, template in group.framework_env.items()]
    if found:
        who = "its first process gets" if group.role.program else "each of them gets"
        echo(f"  {who}, beside what every node does (docs/concepts.md):")
        echo("\n".join(found))


def _entry(group: GroupPlan, code: ArtifactPlan) -> str:
    return group.entrypoint or code.entrypoint or code.file_name


def _describe_program(plan: RunPlan, group: GroupPlan, shown: Shown) -> None:
    code = plan.artifact
    command = group.command or ((_entry(group, code),) if code else ())
    own = [shown.text(word) for word in group.node_args]
    words = shown.command(group.role.launcher, hidden_words([*command, *group.args, *own]))
    processes = plan.processes_of(group.first_rank)
    times = f", {processes} times on each node" if processes > 1 else ""
    echo(f"  runs {words}{times}")
    if own:
        echo(f"  of which each node has its own: {shlex.join(hidden_words(group.node_args))}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
