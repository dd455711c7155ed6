"""`muster explain`."""

from __future__ import annotations

from typing import Any

import click

from muster.cli.output import print_json, print_table
from muster.cli.run import draft_from
from muster.cli.run import run as _run

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
    from muster.client.api import Client

    client = Client()
    draft = draft_from(client, ctx.meta["after"], **options)
    if draft.new_job:
        client.service.discard(draft.job)
    plan = draft.plan
    if as_json:
        print_json(plan.to_json())
        return
    click.echo(f"job {draft.job.name}, {len(plan.nodes)} nodes, framework {plan.framework}")
    click.echo(f"network {plan.network}: {plan.network_reason}")
    order = "each group when the one before it is up" if plan.in_order else "all at once"
    click.echo(f"startup: {order}")
    for note in draft.notes:
        click.echo(f"note: {note}")
    for group in plan.groups:
        click.echo(
            f"\ngroup {group.name}: {group.size} nodes, {group.min_success} of "
            f"{group.replicas} replicas must succeed"
        )
        command = group.command or (plan.artifact.file_name if plan.artifact else "",)
        click.echo(f"  runs {' '.join([*command, *group.args])}")
        for mount in group.mounts:
            click.echo(f"  {mount.source} at {mount.path} (${mount.variable})")
        for name, value in {**group.env, **group.framework_env}.items():
            click.echo(f"  {name}={value}")
    click.echo()
    rows = [(str(n.rank), n.group, n.fqdn, n.address, n.node_id) for n in plan.nodes]
    print_table(("RANK", "GROUP", "NAME", "ADDRESS", "NODE ID"), rows)
