"""`muster events`."""

from __future__ import annotations

from collections.abc import Mapping
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

    when = time_text(entry.time) or ""
    return (f"{entry.seq:>3}", when, f"{entry.kind:<9}", sentence(entry.kind, entry.data))


def _by(data: Mapping[str, str]) -> str:
    why = data.get("why", "")
    return f" {why}" if why.startswith("by ") else f": {why}"


class _Known(dict[str, str]):
    """What is known of an entry: one in a damaged store may lack anything."""

    def __missing__(self, name: str) -> str:
        return "?"


def sentence(kind: str, data: Mapping[str, Any]) -> str:
    """An entry as a person reads it."""
    from muster.lifecycle.describe import in_a_line, reason_of

    first = _Known({k: str(v).partition("\n")[0] for k, v in data.items() if v not in ("", None)})
    for name in first.keys() & {"details", "why"}:
        first[name] = in_a_line(str(data[name]))
    why = f": {first['why']}" if "why" in first else ""
    match kind:
        case "nodes":
            exit_code = first.get("exit_code")
            how = f" with exit code {exit_code}" if exit_code not in (None, "0") else ""
            again = f", restart {first['restart']}" if "restart" in first else ""
            return f"{first['ranks']} {first['state']}{how}{again}{why}"
        case "run":
            details = f": {first['details']}" if "details" in first else ""
            return f"{first['state']}{details}"
        case "failure":
            reason = reason_of(str(data.get("message", "")))
            code = f" with exit code {first['exit_code']}" if "exit_code" in first else ""
            life = f", restart {first['restart']}" if "restart" in first else ""
            where = f"node-{first['rank']} (group {first['group']}{life})"
            return f"{where} failed{code}, reason {first['reason']}" + (
                f": {reason}" if reason else ""
            )
        case "restart":
            wait = f" in {first['wait']} s" if data.get("wait") else ""
            return f"{first['restart']}: {first['what']} starts again{wait}{why}"
        case "attempt" | "resumed":
            return f"attempt {first['attempt']} begins{why}"
        case "scale_requested":
            return f"{first['group']} to {first['replicas']}{_by(first)}"
        case "scaled":
            return f"{first['group']} scaled from {first['from']} to {first['to']}{_by(first)}"
        case "stopping":
            return f"towards {first['towards']}{why}"
        case _:
            return first.get("why") or " ".join(f"{k}={v}" for k, v in first.items())
