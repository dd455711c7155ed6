"""Ask before something is deleted or ended."""

from __future__ import annotations

import sys

import click

from muster.cli.terminal import echo
from muster.errors import EXIT_CANCELED, InvalidInput, Problem


def check_terminal(question: str) -> None:
    """Raises InvalidInput if there is no terminal to ask on."""
    if not sys.stdin.isatty():
        raise InvalidInput(Problem("", f"{question}: no terminal to confirm on", "add --yes"))


def confirm(question: str, declined: str = "nothing was changed") -> None:
    """Ask, with the question starting in lower case. declined: printed for a no. Raises
    InvalidInput without a terminal, and Exit for a no."""
    check_terminal(question)
    if not click.confirm(f"{question[0].upper()}{question[1:]}?", err=True):
        echo(declined, err=True)
        raise click.exceptions.Exit(EXIT_CANCELED)
