"""`muster users keys`."""

from __future__ import annotations

from pathlib import Path

import click

from muster.cli.account_data import account_data
from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import ago, print_json, print_table
from muster.cli.terminal import echo

_USER = click.option("--user", metavar="NAME", help="Whose key it is. Default: you.")


@click.group(cls=Group)
def keys() -> None:
    """Public keys, by which clients of OCI sign their requests.

    `muster oci-config` makes a key, and adds it.
    """


def _me(user: str | None) -> str:
    from muster.client.connect import connect_accounts

    return user or connect_accounts().whoami().user


@keys.command("list")
@_USER
@json_option()
def list_keys(user: str | None, as_json: bool) -> None:
    """List public keys, the oldest first.

    \b
    muster users keys list
    """
    from muster.client.connect import connect_accounts

    found = connect_accounts().keys(_me(user))
    if as_json:
        print_json([account_data(key) for key in found])
        return
    if not found:
        echo("no keys: `muster oci-config` makes one, and adds it", err=True)
        return
    rows = [(key.fingerprint, key.user, key.name or "-", ago(key.created_at)) for key in found]
    print_table(("FINGERPRINT", "USER", "TITLE", "ADDED"), rows, drop=("TITLE", "ADDED"))


@keys.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_USER
@click.option("--title", metavar="TEXT", default="", help="Where the private key is, for people.")
@json_option()
def add(file: Path, user: str | None, title: str, as_json: bool) -> None:
    """Add the public key in FILE (PEM).

    Requests to the OCI API that are signed with the private key are then yours. `openssl rsa
    -pubout -in KEY` prints the public key of a private one.

    \b
    muster users keys add ~/.oci/oci_api_key_public.pem
    """
    from muster.client.connect import connect_accounts

    made = connect_accounts().add_key(_me(user), file.read_text(errors="replace"), title)
    if as_json:
        print_json(account_data(made))
        return
    echo(f"added {made.fingerprint}, of {made.user}")


@keys.command()
@click.argument("fingerprint")
def delete(fingerprint: str) -> None:
    """Delete a public key; a server forgets it within 5 seconds.

    \b
    muster users keys delete 20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34
    """
    from muster.client.connect import connect_accounts

    connect_accounts().delete_key(fingerprint)
    echo(f"deleted {fingerprint}")
