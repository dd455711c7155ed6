"""`muster secrets`."""

from __future__ import annotations

import sys

import click

from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo
from muster.errors import InvalidInput, Problem

#: Characters that are read: more than a value may have.
_MOST = 1 << 20


@click.group(cls=Group)
def secrets() -> None:
    """Store secrets of a project: passwords and tokens that its runs use.

    Jobs name them in node_env, node_args and files: `HF_TOKEN: ${secret.hf-token}`. They are stored
    encrypted, given to runs when they start, and never shown.
    """


_PROJECT = click.option("--project", metavar="PROJECT", help="Default: the current project.")


@secrets.command("list")
@_PROJECT
@json_option()
def list_secrets(project: str | None, as_json: bool) -> None:
    """List the project's secrets, without their values.

    \b
    muster secrets list
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts(project).secrets()
    if as_json:
        print_json([account_data(secret) for secret in found])
        return
    if not found:
        echo("no secrets: `muster secrets set NAME` stores one", err=True)
        return
    rows = [(one.name, str(one.version), one.set_by, ago(one.set_at)) for one in found]
    print_table(("SECRET", "VERSION", "SET BY", "SET"), rows, right=("VERSION",))


@secrets.command("set")
@click.argument("name")
@_PROJECT
def set_secret(name: str, project: str | None) -> None:
    """Store a secret, or replace its value.

    Asks for the value or, if its input is not a terminal, reads it from there, without the line
    break at its end. Runs that have started keep the former value.

    \b
    muster secrets set hf-token
    muster secrets set deploy-key < id_ed25519
    """
    from muster.client.connect import connect_accounts

    value = _value(name)
    secret = connect_accounts(project).set_secret(name, value)
    echo(f"stored version {secret.version} of secret {secret.name}", err=True)
    echo(f"in a group of a job: node_env: {{NAME: ${{secret.{secret.name}}}}}", err=True)


def _value(name: str) -> str:
    """The value, from the terminal or from standard input. Raises InvalidInput."""
    if sys.stdin.isatty():
        value: str = click.prompt(f"Value of {name}", hide_input=True, err=True)
        return value
    try:
        text = sys.stdin.read(_MOST)
    except UnicodeDecodeError:
        hint = "encode it, such as with base64"
        raise InvalidInput(Problem("", "standard input is not text", hint)) from None
    return text.removesuffix("\n").removesuffix("\r")


@secrets.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@_PROJECT
def rm(names: tuple[str, ...], project: str | None) -> None:
    """Delete secrets. Runs that have started keep them.

    \b
    muster secrets rm hf-token
    """
    from muster.client.connect import connect_accounts

    accounts = connect_accounts(project)
    for name in names:
        accounts.delete_secret(name)
        echo(f"deleted secret {name}", err=True)
