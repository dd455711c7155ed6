"""`muster ports`."""

from __future__ import annotations

import click

from muster.cli.arguments import json_option
from muster.cli.terminal import echo


@click.command()
@click.argument("framework", required=False)
@json_option()
def ports(framework: str | None, as_json: bool) -> None:
    """Which ports must be open between the nodes of a FRAMEWORK, and why.

    Of nodes that are machines of their own. On one machine Muster finds free ports itself. Without
    FRAMEWORK: what frameworks there are.
    """
    from msgspec import to_builtins

    from muster.cli.output import print_json, print_table
    from muster.frameworks.registry import framework_names, get_framework

    if framework is None:
        known = [get_framework(name) for name in framework_names()]
        if as_json:
            print_json([{"name": one.name, "summary": one.summary} for one in known])
            return
        print_table(("FRAMEWORK", "WHAT IT IS"), [(one.name, one.summary) for one in known])
        return
    found = get_framework(framework)
    if as_json:
        print_json([to_builtins(need) for need in found.needs])
        return
    if not found.needs:
        echo(f"{framework} listens on no ports of its own")
        return
    rows = [(need.ports, need.on, need.why) for need in found.needs]
    print_table(("TCP PORT", "ON", "WHY"), rows)
