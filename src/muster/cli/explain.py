"""`muster explain`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from muster.api.answers import PlanLimits
from muster.api.prepared import PreparedRun
from muster.cli.arguments import json_option
from muster.cli.findings import print_findings
from muster.cli.output import print_cells, print_json
from muster.cli.run import options_of_run, prepare_all
from muster.cli.run import run as _run
from muster.cli.terminal import echo
from muster.describe.plan import plan_lines, with_described_addresses
from muster.describe.settings import changes
from muster.plan.model import NodePlan, RunPlan

if TYPE_CHECKING:
    from muster.client.client import Client


@click.command(
    cls=type(_run),
    params=options_of_run(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@json_option("Print the plan as JSON.", short=False)
@click.pass_context
def explain(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Show the plan of a run, and what its engine would create; start nothing.

    `muster run --dry-run` also has the engine validate it.

    \b
    muster explain job.yaml --nodes 4
    muster explain train.py --framework pytorch -o json
    """
    explain_runs(ctx.meta["after"], as_json=as_json, **options)


def explain_runs(
    after: list[str] | None, *, as_json: bool, validate: bool = False, **options: Any
) -> bool:
    """Print the plan of the run that the options of `muster run` describe, or of each job. Returns
    whether the infrastructure of its engine would accept it.

    after: the words after `--`. validate: whether to ask the infrastructure. Nothing is stored.
    Raises InvalidInput.
    """
    from muster.client.client import Client

    client = Client()
    every = prepare_all(client, after, {**options, "yes": True})  # nothing starts
    return show_prepared(client, every, as_json=as_json, validate=validate)


def show_prepared(
    client: Client, every: Iterable[PreparedRun], *, as_json: bool, validate: bool
) -> bool:
    """Print the plans of prepared runs, and drop what was made for them. Otherwise as
    `explain_runs`."""
    data, works = [], True
    for prepared in every:
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
        if validate and (found := client.api.dry_run(prepared.plan)):
            works = works and all(one.works for one in found)
            echo(err=as_json)
            print_findings(found, err=as_json)
    if as_json:
        print_json(data[0] if len(data) == 1 else data)
    return works


def created_for(target: str, engine: str) -> list[str]:
    """What an engine would create for a run of a target, or of each job in it. Raises
    InvalidInput."""
    from muster.client.client import Client

    client, created = Client(), list[str]()
    with explain.make_context("explain", [target, "--engine", engine]) as ctx:
        options = {name: value for name, value in ctx.params.items() if name != "as_json"}
        every = prepare_all(client, ctx.meta["after"], {**options, "yes": True})
    try:
        for prepared in every:
            created += client.api.plan_limits(prepared.plan).created.values()
    finally:
        for prepared in every:
            if prepared.new_job:
                client.api.discard(prepared.job)
    return created


def describe(plan: RunPlan, limits: PlanLimits, first: Iterable[str] = ()) -> None:
    """Print what would run. first: lines to print below the heading."""
    described = with_described_addresses(plan)
    for line in plan_lines(described, limits.limits, limits.memory, limits.engine, first):
        echo(line)
    echo()
    listed = {g.name: g.numbers[0][0] for g in plan.policy.groups if g.is_array and g.initial}
    nodes = sorted(_listed(plan, listed), key=attrgetter("rank"))
    rows = [
        {
            **{"RANK": str(n.rank), "GROUP": n.group, "NAME": n.fqdn},
            **{"ADDRESS": n.address or "-", "NODE ID": n.node_id},
        }
        for n in nodes
    ]
    has_addresses = any(n.address for n in nodes)  # others are known when nodes have machines
    print_cells(
        ["RANK", "GROUP", "NAME", *(["ADDRESS"] if has_addresses else []), "NODE ID"],
        rows,
        drop=("NODE ID", "GROUP"),
        shorten={"NAME": 16, "GROUP": 12},
    )
    for name, number in listed.items():
        echo(f"only replica {number} of group {name} is listed; the others have the same nodes")
    for title, text in limits.created.items():
        echo(f"\n{title}:")
        for line in text.splitlines():
            echo(f"    {line}")


def _listed(plan: RunPlan, replicas: Mapping[str, int]) -> Iterator[NodePlan]:
    """The nodes that are to run; of an array, those of one replica. replicas: array -> which."""
    first = plan.policy.first_nodes()
    for node in plan.nodes:
        if not (plan.group(node.group).is_array or first[node.rank].scaled_down):
            yield node
    for group in plan.policy.groups:
        if group.name in replicas:
            slot = plan.slots(plan.group(group.name)).start
            for index, rank in enumerate(group.replica_ranks(replicas[group.name])):
                yield plan.node(rank, slot + index)


def _packed_modules(prepared: PreparedRun, files: Sequence[str]) -> list[str]:
    """A line that names the modules packed with a script; none if there are none."""
    if not files:
        return []
    name = os.path.basename(str(prepared.spec.artifact))
    tops = {file.partition("/")[0] + ("/" if "/" in file else "") for file in files}
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    shown = ", ".join(sorted(tops))
    return [f"code: {name}, with modules it imports from its folder: {shown} ({count})"]
