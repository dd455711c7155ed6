"""What commands that change policies and groups have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli import completion_values as values
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo
from muster.describe.words import plural

if TYPE_CHECKING:
    from muster.api.policies import PoliciesAPI, PolicyDraft, RuleDraft

F = TypeVar("F", bound=Callable[..., Any])

DESCRIPTION = click.option("--description", metavar="TEXT", help="What it is for.")
VERSION = click.option(
    "--version",
    type=click.IntRange(min=1),
    metavar="N",
    help="The version that the change is based on: fails if it is another one by now. Default: "
    "the newest.",
)
DRY_RUN = click.option(
    "--dry-run",
    is_flag=True,
    help="Change nothing: list the requests of the audit log that would be answered otherwise.",
)
SINCE = click.option(
    "--since",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="With --dry-run: only requests later than this.",
)
YES = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")


def file_option(about: str) -> Callable[[F], F]:
    """The option that names a file with what is to be written. about: its help."""
    return click.option("--file", "-f", metavar="FILE", shell_complete=values.files, help=about)


def show_preview(
    api: PoliciesAPI, draft: PolicyDraft | RuleDraft, since: str, *, as_json: bool
) -> None:
    """Print which requests a change would answer in another way."""
    from msgspec import to_builtins

    from muster.client.filters import moment_of
    from muster.describe.times import minute, moment, time_text

    start = moment_of("--since", since)
    found = api.preview(draft, start)
    if as_json:
        changed = [{**to_builtins(one), "last_at": time_text(one.last_at)} for one in found.changed]
        print_json({"examined": found.examined, "changed": changed})
        return
    if not found.examined:
        echo(f"the audit log has no requests since {minute(moment(start))}", err=True)
        return
    requests = f"{plural(found.examined, 'request')} in the audit log since {minute(moment(start))}"
    if not found.changed:
        echo(f"{requests} would be answered as before", err=True)
        return
    rows = [
        (
            *(one.who, one.permission, one.compartment),
            "allowed" if one.allowed else "refused",
            *(str(one.requests), ago(one.last_at)),
            "-" if one.statement is None else one.statement.place,
            "-" if one.statement is None else one.statement.text,
        )
        for one in found.changed
    ]
    header = (
        "WHO",
        "PERMISSION",
        "COMPARTMENT",
        "WITH THE CHANGE",
        "REQUESTS",
        "LAST",
        "BY",
        "STATEMENT",
    )
    print_table(header, rows, drop=("STATEMENT", "LAST", "REQUESTS"))
    count = sum(one.requests for one in found.changed)
    echo(f"{count:,} of {requests} would be answered in another way", err=True)
