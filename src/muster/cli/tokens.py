"""`muster tokens`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo
from muster.permissions import Right

if TYPE_CHECKING:
    from muster.store.account_records import TokenRecord

#: The default of --expires.
_LIFETIME = "90d"


@click.group(cls=Group)
def tokens() -> None:
    """List, create and revoke tokens, which programs show to a server."""


@tokens.command("list")
@click.option("--user", metavar="USER", help="Those of another user. Default: your own.")
@click.option("--project", metavar="PROJECT", help="Those that can be used in one project only.")
@click.option("--all", "-a", "include", is_flag=True, help="Include expired and revoked ones.")
@json_option()
def list_tokens(user: str | None, project: str | None, include: bool, as_json: bool) -> None:
    """List tokens, newest first.

    \b
    muster tokens list
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts(project).tokens(user=user, project=project)
    shown = [token for token in found if include or _state(token) == "active"]
    if as_json:
        print_json([account_data(token) | {"state": _state(token)} for token in shown])
        return
    if not shown:
        ended = "; --all shows expired and revoked ones" if found else ""
        echo(f"no tokens{ended}", err=True)
        return
    header = ("ID", "NAME", "USER", "PROJECT", "SCOPES", "STATE", "EXPIRES", "LAST USED")
    rows = [_row(token) for token in shown]
    print_table(header, rows, drop=("SCOPES", "LAST USED"), shorten={"NAME": 12})


def _row(token: TokenRecord) -> tuple[str, ...]:
    from muster.describe.times import minute, optional_moment

    return (
        token.id,
        token.name,
        token.user,
        token.project or "all",
        "all" if token.scopes is None else ",".join(sorted(token.scopes)),
        _state(token),
        "never" if token.expires_at is None else minute(optional_moment(token.expires_at)),
        "never" if token.last_used_at is None else ago(token.last_used_at),
    )


def _state(token: TokenRecord) -> str:
    if token.revoked_at is not None:
        return "revoked"
    over = token.expires_at is not None and token.expires_at <= time.time()
    return "expired" if over else "active"


@tokens.command()
@click.argument("name")
@click.option("--user", metavar="USER", help="Whose it is. Default: you.")
@click.option("--project", metavar="PROJECT", help="It can be used in this project only.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([right.value for right in Right]),
    help="What it can be used for. May be repeated. Default: everything that the user may do.",
)
@click.option(
    "--expires",
    default=_LIFETIME,
    metavar="TIME",
    show_default=True,
    help="How long it can be used: 12h, 30d, or never.",
)
@json_option()
def create(
    name: str,
    user: str | None,
    project: str | None,
    scopes: tuple[str, ...],
    expires: str,
    as_json: bool,
) -> None:
    """Create a token, and print it. It is not stored, and cannot be printed again.

    NAME says what it is for, such as the program or machine that uses it.

    \b
    muster tokens create laptop
    muster tokens create ci --user nightly-build --project vision --scope read --scope submit
    """
    from muster.client.connect import connect_accounts
    from muster.client.filters import duration_of

    lasts = None if expires == "never" else duration_of("--expires", expires)
    made = connect_accounts(project).create_token(
        name,
        user=user,
        project=project,
        scopes=[Right(scope) for scope in scopes] or None,
        expires_at=None if lasts is None else time.time() + lasts,
    )
    if as_json:
        import json

        # `print_json` hides tokens
        echo(json.dumps(account_data(made.record) | {"text": made.text}, indent=2), secrets=True)
        return
    echo(made.text, secrets=True)
    ends = _row(made.record)[6]
    echo(f"token {made.record.id} of {made.record.user}, expires: {ends}", err=True)


@tokens.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def revoke(ids: tuple[str, ...]) -> None:
    """Revoke tokens. A server forgets them within 5 seconds.

    ID is in the token itself: muster_ID_...

    \b
    muster tokens revoke 3k9w2m8x1p
    """
    from muster.client.connect import connect_accounts

    accounts = connect_accounts()
    for token_id in ids:
        revoked = accounts.revoke_token(token_id)
        echo(f"revoked {token_id}" if revoked else f"{token_id} was revoked before", err=True)
