"""`muster explain`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

from muster.cli.output import print_json, print_table
from muster.cli.run import options_of_run, prepare_from
from muster.cli.run import run as _run
from muster.cli.terminal import echo
from muster.describe.plan import GroupLimits, plan_lines
from muster.describe.settings import changes
from muster.engines.local.resources import describe_limits, share_of_memory, this_machine
from muster.plan.model import GroupPlan, RunPlan
from muster.service.prepare import PreparedRun, packed_files


@click.command(
    cls=type(_run),
    params=options_of_run(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.pass_context
def explain(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Show what `muster run` with the same arguments would run. Starts nothing."""
    from muster.client.client import Client

    client = Client()
    prepared = prepare_from(client, ctx.meta["after"], **options)
    modules = _packed_modules(prepared, packed_files(client.service.home, prepared))
    if prepared.new_job:
        client.service.discard(prepared.job)
    plan = prepared.plan
    if as_json:
        print_json(plan.to_json())
        return
    changed = changes(prepared.job_spec, prepared.overrides)
    describe(plan, [*modules, *(f"overridden for this run: {line}" for line in changed)])


def describe(plan: RunPlan, first: Iterable[str] = ()) -> None:
    """Print what would run. first: lines to print below the heading."""
    machine = this_machine()

    def limits(group: GroupPlan) -> GroupLimits:
        text = describe_limits(group.resources, machine)
        return GroupLimits(text, share_of_memory(plan, group, machine))

    for line in plan_lines(plan, limits, first):
        echo(line)
    echo()
    started = [not node.scaled_down for node in plan.policy.first_nodes()]
    rows = [
        (str(n.rank), n.group, n.fqdn, n.address, n.node_id) for n in plan.nodes if started[n.rank]
    ]
    print_table(("RANK", "GROUP", "NAME", "ADDRESS", "NODE ID"), rows)


def _packed_modules(prepared: PreparedRun, files: Sequence[str]) -> list[str]:
    """A line that names the modules packed with a script; none if there are none."""
    if not files:
        return []
    name = os.path.basename(str(prepared.spec.artifact))
    tops = {file.partition("/")[0] + ("/" if "/" in file else "") for file in files}
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    shown = ", ".join(sorted(tops))
    return [f"code: {name}, with modules it imports from its folder: {shown} ({count})"]
