"""`muster logs`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import click

from muster.cli.arguments import (
    Count,
    chosen_ranks,
    groups_option,
    json_option,
    ranks_option,
    replicas_option,
    run_argument,
)

if TYPE_CHECKING:
    from muster.api.streams import LogChunk


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
    help="An attempt's number, or all. Default: the newest; of an array, all.",
)
@ranks_option()
@replicas_option()
@groups_option()
@click.option(
    "--stream",
    "streams",
    multiple=True,
    type=click.Choice(["stdout", "stderr", "service"]),
    help="Only this stream; service: messages of Muster, not of --service.",
)
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="NAME",
    help="Only this service of the framework: scheduler, head, ... or all.",
)
@click.option("--stderr", is_flag=True, help="The same as --stream stderr.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only lines of the last 90s, 5m, 1d, or since a time: 2026-11-23T10:00.",
)
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression (RE2).")
@click.option("--tail", "-n", type=Count(min=0), metavar="N", help="Only the last N lines.")
@click.option("--timestamps", "-t", is_flag=True, help="Print the time of each line.")
@click.option("--utc", is_flag=True, help="As --timestamps, in UTC instead of local time.")
@json_option("Print one JSON record per line.")
def logs(
    run_name: str,
    follow: bool,
    attempt: int | Literal["all"] | None,
    since: str | None,
    timestamps: bool,
    utc: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the output of a run's nodes, and Muster's messages.

    Shows the newest attempt (of an array, all attempts) in chronological order, unless --attempt
    selects another. --follow continues through later attempts; all options except --tail also apply
    to new lines.

    \b
    muster logs last -f
    muster logs train-3 --rank 0,2-5 --stderr --tail 100
    muster logs sweep-1 --replica 17
    muster logs train-3 --since 10m --grep 'loss=(nan|inf)' -t
    """
    from muster.api.streams import Selection
    from muster.cli.follow import report_if_suspended
    from muster.cli.log_printer import Printer
    from muster.client.client import Client
    from muster.client.filters import moment_of

    run = Client().run(run_name)
    streams = {*options["streams"], *(["stderr"] if options["stderr"] else [])}
    selection = Selection(
        ranks=chosen_ranks(run, *(options[name] for name in ("ranks", "replicas", "groups")))
        or None,
        groups=options["groups"] or None,
        streams=streams or None,
        tail=options["tail"],
        since=None if since is None else moment_of("--since", since),
        grep=options["grep"],
        attempt=attempt,
        services=options["services"] or None,
    )
    chunks = run.log_chunks(selection, follow=follow)
    if as_json:
        _print_json(chunks)
    else:
        printer = Printer(
            run.group_sizes(),
            arrays=run.arrays(),
            processes=run.processes_per_node,
            messages="inline" if selection.with_messages else "none",
            stamp=_stamp(utc=utc) if timestamps or utc else None,
        )
        printer.print(chunks)
    report_if_suspended(run, following=follow)


def _stamp(*, utc: bool) -> Callable[[int], bytes]:
    """Prints a time in nanoseconds as `2026-11-23T10:00:00.123+01:00 `."""
    from datetime import UTC, datetime

    def stamp(time_ns: int) -> bytes:
        when = datetime.fromtimestamp(time_ns / 1e9, UTC)
        if utc:
            return when.isoformat(timespec="milliseconds").encode().replace(b"+00:00", b"Z ")
        return when.astimezone().isoformat(timespec="milliseconds").encode() + b" "

    return stamp


def _print_json(chunks: Iterable[LogChunk]) -> None:
    from muster.cli.output import print_json_line
    from muster.client.log_records import records

    for chunk in chunks:
        for record in records(chunk):
            print_json_line(record.to_dict())
