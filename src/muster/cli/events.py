"""`muster events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import json_option, run_argument
from muster.cli.output import print_json, print_json_line, print_table
from muster.cli.terminal import echo
from muster.escapes import visible_line

if TYPE_CHECKING:
    from muster.store.records import EventRecord


@click.command()
@run_argument()
@click.option("--follow", "-f", is_flag=True, help="Go on until the run has ended.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only entries after number N.")
@json_option()
def events(run_name: str, follow: bool, after: int, as_json: bool) -> None:
    """What happened to a run and why, numbered, with times.

    With --follow --json, one JSON object a line as it happens; who remembers the last number can
    go on from there with --after.
    """
    from muster.cli.follow import tell_if_suspended
    from muster.client.client import Client

    run = Client().run(run_name)
    found = run.events(after=after, follow=follow)
    if follow:
        for entry in found:
            if as_json:
                print_json_line(_data(entry))
            else:
                echo("  ".join(visible_line(cell) for cell in _row(entry)))
        tell_if_suspended(run, follow=True)
    elif as_json:
        print_json([_data(entry) for entry in found])
    else:
        print_table(("SEQ", "TIME", "WHAT", "DATA"), [_row(entry) for entry in found])


def _data(entry: EventRecord) -> dict[str, Any]:
    from muster.client.times import time_text

    return {"seq": entry.seq, "time": time_text(entry.time), "kind": entry.kind, **entry.data}


def _row(entry: EventRecord) -> tuple[str, str, str, str]:
    from muster.client.times import time_text
    from muster.lifecycle.sentences import sentence

    when = time_text(entry.time) or ""
    return (f"{entry.seq:>3}", when, f"{entry.kind:<9}", sentence(entry.kind, entry.data))
