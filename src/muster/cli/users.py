"""`muster users`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.keys import keys
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo

if TYPE_CHECKING:
    from muster.api.accounts import UserChange
    from muster.store.account_records import UserRecord


@click.group(cls=Group)
def users() -> None:
    """List, add and change the users of a server.

    People and service accounts. `muster projects` says what each may do, `muster tokens` lets them
    in.
    """


@users.command()
@json_option()
def whoami(as_json: bool) -> None:
    """Show who you are here, and what you may do.

    \b
    muster users whoami
    """
    from msgspec import to_builtins

    from muster.client.connect import connect_accounts

    me = connect_accounts().whoami()
    if as_json:
        token = None if me.token is None else account_data(me.token)
        print_json(to_builtins(me) | {"token": token})
        return
    echo(f"{me.user}, in project {me.project}")
    echo(f"may: {', '.join(me.rights) or 'nothing; ask an admin of a project to add you'}")
    for member in me.projects:
        echo(f"{member.role} of project {member.project}")
    if me.token is not None and me.token.expires_at is not None:
        from muster.describe.times import minute, moment

        echo(f"token {me.token.id} expires at {minute(moment(me.token.expires_at))}")


@users.command("list")
@json_option()
def list_users(as_json: bool) -> None:
    """List all users.

    \b
    muster users list
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts().users()
    if as_json:
        print_json([account_data(user) for user in found])
        return
    if not found:
        echo("no users: `muster server` makes the first one, `muster users add` others", err=True)
        return
    header = ("USER", "KIND", "ADMIN", "STATE", "CREATED", "DISPLAY NAME")
    print_table(header, [_row(user) for user in found], drop=("CREATED", "DISPLAY NAME"))


def _row(user: UserRecord) -> tuple[str, ...]:
    return (
        user.name,
        user.kind,
        "yes" if user.admin else "no",
        _state(user),
        ago(user.created_at),
        user.display_name or "-",
    )


def _state(user: UserRecord) -> str:
    return "disabled" if user.disabled else "active"


_NAME = click.argument("name")
_DISPLAY_NAME = click.option("--display-name", metavar="TEXT", help="The name that people read.")
_ISSUER = click.option(
    "--issuer",
    metavar="URL",
    help="Where the person logs in: the issuer in the server's oidc.toml.",
)
_SUBJECT = click.option("--subject", metavar="TEXT", help="Who the person is there.")


@users.command()
@_NAME
@click.option("--service", is_flag=True, help="A service account: a program, which never logs in.")
@click.option("--admin", is_flag=True, help="Administers the server: may do everything.")
@_DISPLAY_NAME
@_ISSUER
@_SUBJECT
@json_option()
def add(
    name: str,
    service: bool,
    admin: bool,
    display_name: str | None,
    issuer: str | None,
    subject: str | None,
    as_json: bool,
) -> None:
    """Add a user.

    NAME has letters, digits and . _ @ -, and never changes.

    \b
    muster users add ana
    muster users add nightly-build --service
    """
    from muster.client.connect import connect_accounts
    from muster.store.account_records import UserKind, UserRecord

    user = UserRecord(
        name=name,
        kind=UserKind.SERVICE if service else UserKind.PERSON,
        created_at=0.0,  # set by the server
        display_name=display_name or "",
        issuer=issuer or "",
        subject=subject or "",
        admin=admin,
    )
    made = connect_accounts().create_user(user)
    if as_json:
        print_json(account_data(made))
        return
    echo(f"added {made.kind} {made.name}", err=True)
    if not made.admin:
        echo(f"next: muster projects add-member PROJECT {made.name} --role submitter", err=True)


@users.command()
@_NAME
@click.option("--admin/--no-admin", default=None, help="Whether the user administers the server.")
@_DISPLAY_NAME
@_ISSUER
@_SUBJECT
@json_option()
def change(
    name: str,
    admin: bool | None,
    display_name: str | None,
    issuer: str | None,
    subject: str | None,
    as_json: bool,
) -> None:
    """Change a user.

    \b
    muster users change ana --admin
    muster users change ana --issuer https://id.example.org --subject 8a31
    """
    from muster.api.accounts import UserChange

    change = UserChange(display_name=display_name, admin=admin, issuer=issuer, subject=subject)
    if change == UserChange():
        raise click.UsageError("Say what to change: --admin, --display-name or --issuer.")
    _change(name, change, as_json=as_json)


@users.command()
@_NAME
@json_option()
def disable(name: str, as_json: bool) -> None:
    """Disable a user: its tokens do not work any more. Its runs continue.

    \b
    muster users disable ana
    """
    from muster.api.accounts import UserChange

    _change(name, UserChange(disabled=True), as_json=as_json)


@users.command()
@_NAME
@json_option()
def enable(name: str, as_json: bool) -> None:
    """Enable a disabled user.

    \b
    muster users enable ana
    """
    from muster.api.accounts import UserChange

    _change(name, UserChange(disabled=False), as_json=as_json)


def _change(name: str, change: UserChange, *, as_json: bool) -> None:
    from muster.client.connect import connect_accounts

    user = connect_accounts().change_user(name, change)
    if as_json:
        print_json(account_data(user))
    else:
        rights = "administers the server" if user.admin else "does not administer the server"
        echo(f"changed {user.name}: {_state(user)}, {rights}", err=True)


users.add_command(keys)
