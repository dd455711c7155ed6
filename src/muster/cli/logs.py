"""`muster logs`."""

from __future__ import annotations

import json

import click

from muster.cli.arguments import run_argument


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--rank", "ranks", multiple=True, type=int, metavar="N", help="Only this node.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group.")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this stream.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON record a line.")
def logs(
    run_name: str,
    follow: bool,
    ranks: tuple[int, ...],
    groups: tuple[str, ...],
    stream: str | None,
    tail: int | None,
    as_json: bool,
) -> None:
    """A run's output, of all its nodes, in the order it was written."""
    from muster.cli.follow import Printer
    from muster.client.client import Client

    run = Client().run(run_name)
    selection = run.selection(
        ranks=ranks or None, groups=groups or None, streams=[stream] if stream else None, tail=tail
    )
    chunks = run.log_chunks(selection, follow=follow)
    if not as_json:
        Printer(run.group_sizes(), processes=run.processes_per_node).print(chunks)
        return
    from muster.client.run import record_dict
    from muster.storage.log_reader import records

    for chunk in chunks:
        for record in records(chunk, run.attempt):
            click.echo(json.dumps(record_dict(record)))
