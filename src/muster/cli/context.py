"""`muster context`."""

from __future__ import annotations

import click

from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo

#: The name of the context that only the environment has.
_ENVIRONMENT = "MUSTER_URL"


@click.group(cls=Group)
def context() -> None:
    """Choose where commands work: on this machine, or behind a server."""


@context.command("list")
@json_option()
def list_contexts(as_json: bool) -> None:
    """List the contexts: this machine, and your servers.

    Those are servers that you have logged in to.

    \b
    muster context list
    """
    from muster.client.contexts import LOCAL, read_contexts

    contexts, current = read_contexts(), _current()
    rows = [(LOCAL, "this machine", "")]
    rows += [(name, one.url, one.project or "") for name, one in contexts.servers.items()]
    if current[0] == _ENVIRONMENT:
        rows.append(current)
    if as_json:
        fields = ("name", "server", "project")
        shown = [dict(zip(fields, row, strict=True)) for row in rows]
        print_json([{**one, "current": one["name"] == current[0]} for one in shown])
        return
    print_table(
        ("", "CONTEXT", "SERVER", "PROJECT"),
        [("*" if row[0] == current[0] else "", *row) for row in rows],
    )


@context.command()
@json_option()
def show(as_json: bool) -> None:
    """Show where commands go, and who you are there.

    Prints user, project and rights.

    \b
    muster context show
    """
    from muster.client.connect import connect

    name, server, _ = _current()
    api = connect(None, None)
    try:
        caller = api.caller()
    finally:
        api.close()
    found = {
        "name": name,
        "server": server,
        "user": caller.user,
        "project": caller.project,
        "rights": sorted(caller.rights),
    }
    if as_json:
        print_json(found)
        return
    print_table(
        ("CONTEXT", "SERVER", "USER", "PROJECT", "RIGHTS"),
        [(name, server, caller.user, caller.project, ", ".join(found["rights"]))],
    )


def _current() -> tuple[str, str, str]:
    """Name, server and project of what commands use."""
    from muster.client.contexts import LOCAL, current_address, read_contexts

    address = current_address()
    if address is None:
        return LOCAL, "this machine", ""
    contexts = read_contexts()
    stored = contexts.servers.get(contexts.current)
    name = contexts.current if stored and stored.url == address.url else _ENVIRONMENT
    return name, address.url, address.project or ""


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Have commands use context NAME; `local` is this machine.

    \b
    muster context use local
    """
    from muster.client.contexts import LOCAL, read_contexts, write_contexts

    contexts = read_contexts().used(name)
    write_contexts(contexts)
    where = "this machine" if name == LOCAL else contexts.servers[name].url
    echo(f"commands use {where} now", err=True)
