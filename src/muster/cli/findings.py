"""Prints what this machine, or an engine, was found able to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from muster.cli.terminal import echo, style

if TYPE_CHECKING:
    from muster.engines.findings import Finding


def print_findings(findings: Iterable[Finding], *, err: bool = False) -> None:
    """Print each, with what to do about it. err: to standard error."""
    for finding in findings:
        mark = style("yes", "green") if finding.works else style("no ", "yellow")
        echo(f"{mark} {finding.name}: {finding.says}", wrap=True, hang=4, err=err)
        if finding.advice:
            echo(f"    for more: {finding.advice}", wrap=True, err=err)
