"""`muster ports`."""

from __future__ import annotations

from typing import Any

import click

from muster.cli import completion_values as values
from muster.cli.arguments import json_option
from muster.cli.terminal import echo

_FORMS = ("security-list", "nftables", "ufw", "network-policy")


@click.command()
@click.argument("framework", required=False, shell_complete=values.frameworks)
@click.option(
    "--as",
    "form",
    type=click.Choice(_FORMS),
    help="Print firewall rules instead: OCI's ingress rules as JSON, a ruleset for `nft -f`, "
    "commands of ufw, or a NetworkPolicy of Kubernetes.",
)
@click.option("--source", "sources", metavar="CIDR", multiple=True,
              help="Network that nodes connect from, such as 10.0.1.0/24. Repeatable.")  # fmt: skip
@click.option("--selector", "selectors", metavar="KEY=VALUE", multiple=True,
              help="For network-policy: a label of the nodes' pods. Repeatable.")  # fmt: skip
@click.option("--name", default="", help="For network-policy: its name. Default: muster-FRAMEWORK.")
@click.option("--namespace", default="", help="For network-policy: its namespace.")
@json_option()
def ports(framework: str | None, as_json: bool, **rules: Any) -> None:
    """Show the ports that a framework's nodes need, and why.

    Use this for nodes on separate machines: their firewalls must open these ports. On one machine,
    Muster finds free ports itself. Without FRAMEWORK, lists the frameworks.

    \b
    muster ports pytorch
    muster ports ray --as nftables --source 10.0.1.0/24
    """
    from msgspec import to_builtins

    from muster.cli.output import print_json, print_table
    from muster.frameworks.registry import framework_names, get_framework

    if any(rules.values()):
        echo(_rules(framework, as_json, **rules).rstrip("\n"))
        return
    if framework is None:
        known = [get_framework(name) for name in framework_names()]
        if as_json:
            print_json([{"name": one.name, "summary": one.summary} for one in known])
            return
        print_table(("FRAMEWORK", "DESCRIPTION"), [(one.name, one.summary) for one in known])
        return
    found = get_framework(framework)
    if as_json:
        print_json([to_builtins(need) for need in found.needs])
        return
    if not found.needs:
        echo(f"{framework} needs no ports")
        return
    rows = [(need.ports, need.on, need.why) for need in found.needs]
    print_table(("TCP PORT", "ON", "WHY"), rows, shorten={"WHY": 30, "ON": 12, "TCP PORT": 12})


def _rules(
    framework: str | None,
    as_json: bool,
    *,
    form: str | None,
    sources: tuple[str, ...],
    selectors: tuple[str, ...],
    name: str,
    namespace: str,
) -> str:
    """Firewall rules as text. Raises InvalidInput."""
    from muster.errors import InvalidInput, Problem
    from muster.frameworks.firewall import FORMS, openings, read_peers
    from muster.frameworks.registry import get_framework
    from muster.spec.wording import alternatives

    if form is None:
        hint = f"choose a firewall: --as {alternatives(_FORMS)}"
        raise InvalidInput(Problem("--as", "is missing", hint))
    problems = []
    if framework is None:
        hint = f"muster ports dask --as {form}; `muster ports` lists the frameworks"
        problems.append(Problem("FRAMEWORK", "is missing", hint))
    elif not (needed := openings(get_framework(framework))):
        problems.append(Problem("FRAMEWORK", f"{framework} needs no ports"))
    if as_json:
        problems.append(Problem("--json", f"does not apply to {form}", "leave it out"))
    try:
        peers = read_peers(form, sources, selectors, name, namespace)
    except InvalidInput as error:
        problems += error.problems
    if framework is None or problems:
        raise InvalidInput(*problems)
    return FORMS[form](framework, needed, peers)
