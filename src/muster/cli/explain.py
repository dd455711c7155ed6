"""`muster explain`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

from muster.api.answers import PlanLimits
from muster.api.prepared import PreparedRun
from muster.cli.arguments import json_option
from muster.cli.output import print_json, print_table
from muster.cli.run import options_of_run, prepare_all
from muster.cli.run import run as _run
from muster.cli.terminal import echo
from muster.describe.plan import plan_lines
from muster.describe.settings import changes
from muster.plan.model import RunPlan


@click.command(
    cls=type(_run),
    params=options_of_run(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@json_option("Print the plan as JSON.", short=False)
@click.pass_context
def explain(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Show the plan of a run, and start nothing; the same as `muster run --dry-run`.

    \b
    muster explain job.yaml --nodes 4
    muster explain train.py --framework pytorch -o json
    """
    explain_runs(ctx.meta["after"], as_json=as_json, **options)


def explain_runs(after: list[str] | None, *, as_json: bool, **options: Any) -> None:
    """Print the plan of the run that the options of `muster run` describe, or of each JobSet.

    after: the words after `--`. Nothing is stored. Raises InvalidInput.
    """
    from muster.client.client import Client

    client = Client()
    data = []
    for prepared in prepare_all(client, after, options):
        modules = _packed_modules(prepared, client.api.packed_files(prepared))
        if prepared.new_job:
            client.api.discard(prepared.job)
        if as_json:
            data.append(prepared.plan.to_json())
        else:
            changed = changes(prepared.job_spec, prepared.overrides)
            first = [*modules, *(f"overridden for this run: {line}" for line in changed)]
            first += [f"cannot start: {problem}" for problem in prepared.missing]
            describe(prepared.plan, client.api.plan_limits(prepared.plan), first)
    if as_json:
        print_json(data[0] if len(data) == 1 else data)


def describe(plan: RunPlan, limits: PlanLimits, first: Iterable[str] = ()) -> None:
    """Print what would run. first: lines to print below the heading."""
    for line in plan_lines(plan, limits.limits, limits.memory, first):
        echo(line)
    echo()
    started = [not node.scaled_down for node in plan.policy.first_nodes()]
    rows = [
        (str(n.rank), n.group, n.fqdn, n.address, n.node_id) for n in plan.nodes if started[n.rank]
    ]
    print_table(
        ("RANK", "GROUP", "NAME", "ADDRESS", "NODE ID"),
        rows,
        drop=("NODE ID", "GROUP"),
        shorten={"NAME": 16, "GROUP": 12},
    )


def _packed_modules(prepared: PreparedRun, files: Sequence[str]) -> list[str]:
    """A line that names the modules packed with a script; none if there are none."""
    if not files:
        return []
    name = os.path.basename(str(prepared.spec.artifact))
    tops = {file.partition("/")[0] + ("/" if "/" in file else "") for file in files}
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    shown = ", ".join(sorted(tops))
    return [f"code: {name}, with modules it imports from its folder: {shown} ({count})"]
