"""`muster context`."""

from __future__ import annotations

import click

from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo


@click.group(cls=Group)
def context() -> None:
    """Choose where commands work: on this machine, or behind a server."""


@context.command("list")
@json_option()
def list_contexts(as_json: bool) -> None:
    """List the contexts: this machine, and the servers that you have logged in to.

    \b
    muster context list
    """
    from muster.client.contexts import LOCAL, current_address, read_contexts

    contexts, used = read_contexts(), current_address()
    rows = [(LOCAL, "this machine", "")]
    rows += [(name, one.url, one.project or "") for name, one in contexts.servers.items()]
    if as_json:
        fields = ("name", "server", "project")
        shown = [dict(zip(fields, row, strict=True)) for row in rows]
        print_json([{**one, "current": one["name"] == contexts.current} for one in shown])
        return
    mark = {contexts.current: "*"}
    print_table(
        ("", "CONTEXT", "SERVER", "PROJECT"), [(mark.get(row[0], ""), *row) for row in rows]
    )
    if used is not None and used.url != getattr(
        contexts.servers.get(contexts.current), "url", None
    ):
        echo(f"MUSTER_URL is set: commands use {used.url}", err=True)


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
