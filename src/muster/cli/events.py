"""`muster events`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli.arguments import Count, json_option, run_argument
from muster.cli.output import print_json, print_json_line, print_table
from muster.cli.terminal import echo
from muster.escapes import visible_line

if TYPE_CHECKING:
    from muster.client.events import Event


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Continue until the run has ended.")
@click.option(
    "--after", type=Count(min=0), default=0, metavar="N", help="Only events after number N."
)
@json_option()
def events(run_name: str, follow: bool, after: int, as_json: bool) -> None:
    """Show what happened to a run, when and why.

    --follow --json prints each event as it happens, one JSON object per line. To continue later,
    pass the `seq` of the last one to --after.

    \b
    muster events last --follow
    """
    from muster.cli.follow import report_if_suspended
    from muster.client.client import Client

    run = Client().run(run_name)
    found = run.events(after=after, follow=follow)
    if follow:
        for entry in found:
            if as_json:
                print_json_line(entry.to_dict())
            else:
                echo("  ".join(visible_line(cell) for cell in _row(entry)))
        report_if_suspended(run, following=True)
    elif as_json:
        print_json([entry.to_dict() for entry in found])
    else:
        rows = [_row(entry) for entry in found]
        print_table(("SEQ", "TIME", "WHAT", "DATA"), rows, drop=("WHAT",), shorten={"DATA": 40})


def _row(entry: Event) -> tuple[str, str, str, str]:
    from muster.describe.times import rfc3339

    return (f"{entry.seq:>3}", rfc3339(entry.time), f"{entry.kind:<9}", entry.text)
