"""`muster events`."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING

import click

from muster.cli.arguments import Count, json_option, run_argument
from muster.cli.formats import output_format
from muster.cli.output import print_json, print_json_line, print_table
from muster.cli.terminal import echo, folded, style
from muster.escapes import visible_line

if TYPE_CHECKING:
    from muster.client.events import Event

#: The width of a time: that of today, or `11-23 09:30:00`.
_CLOCK_WIDTH = 14


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Continue until the run has ended.")
@click.option(
    "--after", type=Count(min=0), default=0, metavar="N", help="Only events after number N."
)
@json_option()
def events(run_name: str, follow: bool, after: int, as_json: bool) -> None:
    """Show what happened to a run, when and why.

    On a terminal, times are local, and only -o wide shows the date. Otherwise, they are in UTC.

    --follow --json prints each event as it happens, one JSON object per line. To continue later,
    pass the `seq` of the last one to --after.

    \b
    muster events last --follow
    """
    from muster.cli.follow import report_if_suspended
    from muster.client.client import Client

    run = Client().run(run_name)
    found = run.events(after=after, follow=follow)
    brief = sys.stdout.isatty() and output_format() != "wide"
    if as_json:
        if not follow:
            print_json([entry.to_dict() for entry in found])
        for entry in found if follow else ():
            print_json_line(entry.to_dict())
    elif brief:
        echo(style(f"SEQ  {'TIME':<{_CLOCK_WIDTH}}  {'WHAT':<9}  DATA", "bold"))
        for entry in found:
            _print_brief(entry)
    elif follow:
        for entry in found:
            echo("  ".join(visible_line(cell) for cell in _row(entry)))
    else:
        print_table(("SEQ", "TIME", "WHAT", "DATA"), [_row(entry) for entry in found])
    if follow:
        report_if_suspended(run, following=True)


def _print_brief(entry: Event) -> None:
    """Print an event in the width of the terminal. The day is given if it is not today."""
    time = entry.time.astimezone()
    clock = f"{time:%H:%M:%S}.{time.microsecond // 1000:03}"
    if time.date() != datetime.now().astimezone().date():
        clock = f"{time:%m-%d %H:%M:%S}"
    start = f"{entry.seq:>3}  {clock:<{_CLOCK_WIDTH}}  {entry.kind:<9}  "
    text = visible_line(entry.text)
    columns = shutil.get_terminal_size().columns - len(start)
    echo(start + folded(text, columns, 0).replace("\n", "\n" + " " * len(start)))


def _row(entry: Event) -> tuple[str, str, str, str]:
    from muster.describe.times import rfc3339

    return (f"{entry.seq:>3}", rfc3339(entry.time), f"{entry.kind:<9}", entry.text)
