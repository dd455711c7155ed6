"""`muster logs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import click

from muster.cli.arguments import Count, json_option, ranks_option, run_argument

if TYPE_CHECKING:
    from muster.client.messages import RunChunk


def _attempt(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return "all" if text else None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor all")
    return int(text)


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Continue until the run has ended.")
@click.option(
    "--attempt",
    callback=_attempt,
    metavar="N",
    help="An attempt's number, or all. Default: the newest.",
)
@ranks_option()
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group.")
@click.option(
    "--stream",
    "streams",
    multiple=True,
    type=click.Choice(["stdout", "stderr", "service"]),
    help="Only this stream; service: Muster's own messages.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME",
    help="Output of a framework service (scheduler, head, ...; all), not of the program.",
)
@click.option("--tail", "-n", type=Count(min=0), metavar="N", help="Only the last N lines.")
@json_option("Print one JSON record per line.")
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
    """Show the output of a run's nodes and Muster's messages, in order of time.

    By default, only the newest attempt; --follow continues with the attempts after it.
    """
    from msgspec.structs import replace

    from muster.cli.follow import report_if_suspended
    from muster.cli.log_printer import Printer
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
    if as_json:
        _print_json(chunks)
    else:
        printer = Printer(
            run.group_sizes(),
            processes=run.processes_per_node,
            messages="inline" if selection.messages else "none",
        )
        printer.print(chunks)
    report_if_suspended(run, following=follow)


def _print_json(chunks: Iterable[RunChunk]) -> None:
    from muster.cli.output import print_json_line
    from muster.storage.log_reader import records

    for chunk in chunks:
        for record in records(chunk, chunk.attempt):
            print_json_line(record.to_dict())
