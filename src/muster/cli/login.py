"""`muster login` and `muster logout`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from muster.cli.terminal import echo, warn
from muster.errors import InvalidInput, NotAuthenticated, Problem

if TYPE_CHECKING:
    from muster.api.answers import CallerInfo
    from muster.client.contexts import Address
    from muster.iam.oidc.device_login import DeviceLogin


@click.command()
@click.argument("url")
@click.option("--name", metavar="NAME", help="The context's name. Default: the server's host.")
@click.option("--project", metavar="NAME", help="The project to work in. Default: the user's.")
@click.option(
    "--token-stdin",
    is_flag=True,
    help="Read the token from standard input. Default: MUSTER_TOKEN; else log in where the "
    "server's users do, or ask for it.",
)
@click.option("--ca", metavar="FILE", help="Trust only the certificates in this file.")
def login(
    url: str, name: str | None, project: str | None, token_stdin: bool, ca: str | None
) -> None:
    """Log in to the server at URL, which all commands use from then on.

    `muster context use local` goes back to this machine. The token is stored in MUSTER_HOME,
    readable for you only. In scripts, set MUSTER_URL and MUSTER_TOKEN instead.

    \b
    muster login https://muster.example.org
    muster login http://127.0.0.1:8431 --name lab
    pass muster | muster login https://muster.example.org --token-stdin
    """
    from muster.client.contexts import (
        Address,
        checked_url,
        name_of,
        read_contexts,
        write_contexts,
    )

    address = Address(checked_url(url), project=project, ca=os.path.abspath(ca) if ca else "")
    _warn_of_plain_text(address)
    address = replace(address, token=_token(address, from_stdin=token_stdin))
    caller = _ask_who(address)
    context = name or name_of(address.url)
    write_contexts(read_contexts().having(context, address))
    echo(f"logged in to {address.url} as {caller.user}, in project {caller.project}", err=True)
    echo(f"commands use context {context} now; `muster context use local` goes back", err=True)


def _warn_of_plain_text(address: Address) -> None:
    from muster.addresses import is_on_loopback

    if address.url.startswith("http:") and not is_on_loopback(address.url):
        warn(f"{address.url} is not encrypted: who reads the network's traffic can read the token")


def _token(address: Address, *, from_stdin: bool) -> str:
    if from_stdin:
        token = sys.stdin.readline().strip()
    elif "MUSTER_TOKEN" in os.environ:
        token = os.environ["MUSTER_TOKEN"].strip()
    elif (found := _by_device(address)) is not None:
        token = found
    elif sys.stdin.isatty():
        token = click.prompt(f"Token for {address.url}", hide_input=True, err=True).strip()
    else:
        hint = "pipe it to --token-stdin, or set MUSTER_TOKEN"
        raise InvalidInput(Problem("", "there is no terminal to ask for the token on", hint))
    if not token:
        raise InvalidInput(Problem("", "the token is empty"))
    return token


def _by_device(address: Address) -> str | None:
    """A token for who logs in at the server's issuer; None if the server has none."""
    from muster.client.http.logins import log_in_by_device

    made = log_in_by_device(address, os.uname().nodename, _show_login)
    return None if made is None else made.text


def _show_login(login: DeviceLogin) -> None:
    echo(f"log in at {login.verification_uri} with the code {login.user_code}", err=True)
    if login.verification_uri_complete:
        echo(f"or open {login.verification_uri_complete}", err=True)
    echo("waiting ...", err=True)


def _ask_who(address: Address) -> CallerInfo:
    """The caller that the server knows by the token. Raises NotAuthenticated, ServerUnavailable."""
    from muster.client.http.api import HttpAPI

    api = HttpAPI(address)
    try:
        return api.caller()
    except NotAuthenticated as error:
        raise NotAuthenticated(f"{address.url} refuses the token: {error}") from None
    finally:
        api.close()


@click.command()
@click.argument("name", required=False)
def logout(name: str | None) -> None:
    """Forget a server and its token: the one of the current context, or of context NAME.

    The token stays valid: `muster tokens revoke` ends it.

    \b
    muster logout
    """
    from muster.client.contexts import LOCAL, read_contexts, write_contexts

    contexts = read_contexts()
    chosen = name or contexts.current
    if chosen == LOCAL:
        raise InvalidInput(Problem("", "you are not logged in to a server"))
    write_contexts(contexts.without(chosen))
    echo(f"forgot {chosen}; commands use this machine now", err=True)
