"""`muster events`."""

from __future__ import annotations

import click

from muster.cli.arguments import json_option, run_argument
from muster.cli.output import print_json, print_table


@click.command()
@run_argument()
@json_option()
def events(run_name: str, as_json: bool) -> None:
    """What happened to a run, numbered, with times."""
    from muster.client.client import Client
    from muster.client.times import time_text

    client = Client()
    entries = client.service.events(client.run(run_name).id)
    if as_json:
        print_json(
            [{"seq": e.seq, "time": time_text(e.time), "kind": e.kind, **e.data} for e in entries]
        )
        return
    rows = []
    for entry in entries:
        told = " ".join(f"{k}={v}" for k, v in entry.data.items() if v not in ("", None))
        rows.append((str(entry.seq), time_text(entry.time) or "", entry.kind, told.split("\n")[0]))
    print_table(("SEQ", "TIME", "WHAT", "DATA"), rows)
