"""`muster node-program`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from muster.cli import completion_values as values
from muster.errors import InvalidInput, Problem


@click.command()
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=values.files,
    help="Write to FILE, and make it executable, instead of stdout.",
)
def node_program(output: str | None) -> None:
    """Print the program of nodes, for machines without Muster.

    It is one file, which Python 3.9 or newer runs without any packages. The same version of Muster
    makes the same file everywhere.

    \b
    muster node-program > muster-node.pyz
    muster node-program -o muster-node.pyz
    python3 muster-node.pyz --help
    """
    from muster.engines.node_program import FILE_NAME, node_program

    if output is None and sys.stdout.isatty():
        text = "the program is not text, and standard output is a terminal"
        raise InvalidInput(Problem("", text, f"muster node-program -o {FILE_NAME}"))
    program = node_program()
    if output is None:
        sys.stdout.buffer.write(program)
        return
    try:
        _write(Path(os.path.realpath(output)), program)
    except OSError as error:
        raise InvalidInput(Problem("--output", f"{output}: {error.strerror}")) from None


def _write(path: Path, program: bytes) -> None:
    """Write an executable file. Raises OSError."""
    from muster.node.files import replace_file

    if path.exists() and not path.is_file():
        path.write_bytes(program)  # a device or a FIFO stays what it is
        return
    replace_file(path, program, 0o777)  # Python reads a running program's file again
