"""`muster doctor`."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from muster.cli.arguments import json_option
from muster.cli.findings import print_findings
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo


@click.command()
@json_option()
def doctor(as_json: bool) -> None:
    """Show what this machine supports, and how to extend it.

    Also lists the frameworks and packages of OCI that are installed for the Python that runs
    Muster, and programs for containers, Slurm, MPI and git, with their versions.

    \b
    muster doctor
    """
    from muster.service.findings import examine, home_finding, key_findings
    from muster.service.software import framework_packages, programs

    findings = [*examine(), home_finding(), *key_findings()]
    software = [*framework_packages(), *programs()]
    if as_json:
        print_json([asdict(one) for one in (*findings, *(each.finding() for each in software))])
        return
    print_findings(findings)
    echo()
    rows = [(one.used_for, one.name, one.shown_version, one.where or "-") for one in software]
    print_table(("FOR", "NAME", "VERSION", "WHERE, OR HOW TO INSTALL"), rows)
