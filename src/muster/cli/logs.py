"""`muster logs`."""

from __future__ import annotations

from typing import Literal

import click

from muster.cli.arguments import run_argument


def _attempt(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return "all" if text else None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither the number of an attempt nor all")
    return int(text)


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option(
    "--attempt", callback=_attempt, metavar="N", help="This attempt, or all. Default: the newest."
)
@click.option("--rank", "ranks", multiple=True, type=int, metavar="N", help="Only this node.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    type=click.Choice(["stdout", "stderr", "service"]),
    help="Only this stream; service: what Muster says of the run.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME",
    help="What a service of the framework wrote (scheduler, head, ...; all), not the program.",
)
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON record a line.")
def logs(
    run_name: str,
    follow: bool,
    attempt: int | Literal["all"] | None,
    ranks: tuple[int, ...],
    groups: tuple[str, ...],
    streams: tuple[str, ...],
    services: tuple[str, ...],
    tail: int | None,
    as_json: bool,
) -> None:
    """A run's output, of all its nodes, and what Muster says of the run, in order of time.

    Of a run that was started again, the newest attempt; --follow goes on with those after it.
    """
    from msgspec.structs import replace

    from muster.cli.follow import Printer, tell_if_suspended
    from muster.client.client import Client

    run = Client().run(run_name)
    selection = run.selection(
        ranks=ranks or None,
        groups=groups or None,
        streams=streams or None,
        tail=tail,
        services=services or None,
    )
    chunks = run.log_chunks(replace(selection, attempt=attempt), follow=follow)
    if not as_json:
        printer = Printer(
            run.group_sizes(),
            processes=run.processes_per_node,
            messages="among" if selection.messages else "none",
        )
        printer.print(chunks)
        tell_if_suspended(run, follow=follow)
        return
    from muster.cli.output import print_json_line
    from muster.client.run import record_dict
    from muster.storage.log_reader import records

    for chunk in chunks:
        for record in records(chunk, chunk.attempt):
            print_json_line(record_dict(record))
    tell_if_suspended(run, follow=follow)
