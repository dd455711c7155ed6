"""`muster doctor`."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from muster.cli.arguments import json_option
from muster.cli.output import print_json
from muster.cli.terminal import echo, style


@click.command()
@json_option()
def doctor(as_json: bool) -> None:
    """Show what this machine supports, and what to install for more.

    \b
    muster doctor
    """
    from muster.engines.local.doctor import examine

    findings = examine()
    if as_json:
        print_json([asdict(finding) for finding in findings])
        return
    for finding in findings:
        mark = style("yes", "green") if finding.works else style("no ", "yellow")
        echo(f"{mark} {finding.name}: {finding.says}")
        if finding.advice:
            echo(f"    for more: {finding.advice}")
