"""`muster audit`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import click
from msgspec.structs import replace

from muster.cli.account_data import account_data
from muster.cli.arguments import Count, json_option
from muster.cli.command_hints import Group
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo
from muster.store.account_records import AuditEntry, AuditFilter

#: Entries of a list by default, and of one request of an export.
_LISTED, _PAGE = 100, 5000


@click.group(cls=Group)
def audit() -> None:
    """Show who did what on a server, when, from where, and whether it was allowed.

    Entries are written before anything is done, and are never changed.
    """


def _filters(command: Any) -> Any:
    """The options that choose entries."""
    options: list[Callable[[Any], Any]] = [
        click.option("--user", metavar="USER", help="Only what this user did."),
        click.option(
            "--action", metavar="ACTION", help="Only this: `runs.start`, or all on `runs`."
        ),
        click.option("--object", metavar="NAME", help="Only what was done to this."),
        click.option("--project", metavar="PROJECT", help="Only in this project."),
        click.option(
            "--permission",
            metavar="PERMISSION",
            help="Only what needed this, such as OBJECT_READ.",
        ),
        click.option("--refused", is_flag=True, help="Only what was not allowed."),
        click.option("--since", metavar="TIME", help="Only later than this: 2h, 2026-11-23T10:00."),
        click.option("--until", metavar="TIME", help="Only earlier than this."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _chosen(given: dict[str, Any]) -> AuditFilter:
    from muster.client.filters import moment_of

    refused = given.pop("refused")
    for name in ("since", "until"):
        if given[name] is not None:
            given[name] = moment_of(f"--{name}", given[name])
    return AuditFilter(**given, allowed=False if refused else None)


@audit.command("list")
@_filters
@click.option(
    "--limit",
    type=Count(min=1, max=10_000),
    default=_LISTED,
    metavar="N",
    show_default=True,
    help="Maximum to show.",
)
@click.option("--before", type=Count(min=1), metavar="N", help="Only entries before number N.")
@json_option()
def list_entries(as_json: bool, **given: Any) -> None:
    """List entries, newest first.

    \b
    muster audit list --user ana --since 1d
    muster audit list --refused
    """
    from muster.client.connect import connect_accounts

    chosen = _chosen(given)
    found = connect_accounts(chosen.project).audit(chosen)
    if as_json:
        print_json([account_data(entry) for entry in found])
        return
    if not found:
        echo("no entries", err=True)
        return
    header = ("SEQ", "TIME", "USER", "FROM", "ACTION", "OBJECT", "PROJECT", "OUTCOME")
    drop = ("FROM", "PROJECT", "SEQ")
    print_table(header, [_row(entry) for entry in found], drop=drop)


def _row(entry: AuditEntry) -> tuple[str, ...]:
    from muster.describe.times import minute, moment

    outcome = "done" if entry.allowed else "refused"
    if entry.why:
        outcome = f"{'failed' if entry.allowed else outcome}: {entry.why}"
    return (
        str(entry.seq),
        minute(moment(entry.time)),
        entry.user or "-",
        entry.address or "this machine",
        entry.action,
        entry.object or "-",
        entry.project or "-",
        outcome,
    )


@audit.command()
@_filters
@click.option(
    "--after", type=Count(min=0), default=0, metavar="N", help="Only entries after number N."
)
def export(after: int, **given: Any) -> None:
    """Print entries as JSON, one a line, oldest first.

    To continue later, pass the `seq` of the last one to --after.

    \b
    muster audit export --until 2026-11-01 > audit-2026-10.jsonl
    """
    for entry in _entries(_chosen(given), after):
        echo(_line(entry), secrets=True)


def _line(entry: AuditEntry) -> str:
    """An entry as a line. All of its characters are ASCII: no value can start another line."""
    import json

    return json.dumps(account_data(entry)).replace("\x7f", "\\u007f")


def _entries(chosen: AuditFilter, after: int) -> Iterator[AuditEntry]:
    from muster.client.connect import connect_accounts

    accounts = connect_accounts(chosen.project)
    while page := accounts.audit(replace(chosen, after=after, limit=_PAGE)):
        yield from page
        after = page[-1].seq


@audit.command()
@click.option(
    "--older-than", required=True, metavar="TIME", help="Only entries older than this: 90d."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def prune(older_than: str, yes: bool) -> None:
    """Delete old entries. Export them before.

    \b
    muster audit prune --older-than 365d
    """
    from muster.cli.confirm import confirm
    from muster.client.connect import connect_accounts
    from muster.client.filters import age_of

    before = time.time() - age_of("--older-than", older_than)
    if not yes:
        confirm(f"delete all entries older than {older_than}")
    deleted = connect_accounts().prune_audit(before)
    echo(f"entries deleted: {deleted}", err=True)
