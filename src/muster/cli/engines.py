"""`muster engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from muster.cli.arguments import json_option
from muster.cli.command_hints import Group
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo

if TYPE_CHECKING:
    from muster.engines.installed import InstalledEngine


@click.group(cls=Group)
def engines() -> None:
    """List engines: where nodes can run.

    Jobs choose one with `engine: NAME`, runs also with `--engine NAME`. Other packages can provide
    engines.
    """


@engines.command("list")
@json_option()
def list_engines(as_json: bool) -> None:
    """List the installed engines, and what each can do.

    \b
    muster engines list
    """
    from muster.engines.installed import installed_engines

    found = installed_engines()
    if as_json:
        print_json([_data(one) for one in found])
        return
    rows = [(one.name, one.origin, "no" if one.unusable else "yes") for one in found]
    print_table(("ENGINE", "FROM", "USABLE HERE"), rows, shorten={"FROM": 12})
    for one in found:
        echo()
        echo(_described(one), wrap=True)


def _described(one: InstalledEngine) -> str:
    """What the engine can do and cannot do, as two lines at most, or why it cannot be used."""
    from muster.engines.capabilities import PHRASES

    if one.engine is None:
        return one.unusable  # names it
    if one.unusable:
        return f"{one.name} cannot be used here: {one.unusable}"
    lines = []
    for able, what in ((True, "can"), (False, "cannot")):
        phrases = [PHRASES[name] for name, can in _capabilities(one).items() if can is able]
        if phrases:
            lines.append(f"{one.name} {what}: {', '.join(phrases)}")
    return "\n".join(lines)


def _capabilities(one: InstalledEngine) -> dict[str, bool]:
    from msgspec.structs import asdict

    return {} if one.engine is None else asdict(one.engine.capabilities)


def _data(one: InstalledEngine) -> dict[str, Any]:
    """An engine as JSON. capabilities: empty if the engine cannot be loaded."""
    return {
        "name": one.name,
        "from": one.origin,
        "usable": not one.unusable,
        "why_not": one.unusable or None,
        "capabilities": _capabilities(one),
    }
