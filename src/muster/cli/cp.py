"""`muster cp`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from muster.cli import completion_values as values
from muster.cli.arguments import Count, chosen_rank
from muster.cli.terminal import warn
from muster.interrupt import exit_when_terminated

if TYPE_CHECKING:
    from muster.client.client import Client

#: Seconds before the first progress is shown, and between two updates.
_DELAY, _PERIOD = 1.0, 0.2


@click.command()
@click.option(
    "-r", "-R", "-a", "recursive", is_flag=True, help="No effect: folders are always copied whole."
)
@click.option(
    "--replica",
    type=Count(min=0),
    metavar="N",
    help="Of an array: the replica whose node RUN:PATH is on.",
)
@click.option(
    "--node",
    type=Count(min=0),
    metavar="N",
    help="With --replica: the node in it, from 0; required if it has several.",
)
@click.argument("source", shell_complete=values.files)
@click.argument("target", shell_complete=values.files)
@click.pass_context
def cp(
    ctx: click.Context,
    source: str,
    target: str,
    recursive: bool,
    replica: int | None,
    node: int | None,
) -> None:
    """Copy files and folders to, from and between nodes.

    SOURCE and TARGET are RUN:RANK:PATH, RUN:PATH if the run has one node, or a path on this machine
    (./a:b if it has a colon); - is standard input or output, for one file. A relative PATH starts
    in the node's working directory. PATH may contain the node's variables, in quotes:
    '$MUSTER_OUTPUTS/model.pt'.

    As with cp -r, TARGET is the new name, or an existing folder to copy into; FOLDER/. means the
    contents of FOLDER. Existing files are replaced, and symbolic links are copied as links.

    On a running node, PATH is what its program sees: with its mounts, its own /tmp and its
    permissions. When a node has ended, only its outputs and working directory can be read.

    \b
    muster cp train-3:0:checkpoints .
    muster cp data.csv train-3:1:/tmp/data.csv
    muster cp --replica 17 sweep-1:model.pt .
    muster cp 'last:$MUSTER_OUTPUTS/log.json' - | jq .loss
    """
    from muster.client.client import Client

    exit_when_terminated()  # nothing incomplete is to be left
    progress = _Progress()
    try:
        client = Client()
        if replica is not None or node is not None:
            source, target = (_with_rank(client, text, replica, node) for text in (source, target))
        left_out = client.node_access.copy(source, target, progress)
    finally:
        progress.clear()
    for line in left_out:
        warn(f"not copied: {line}")
    ctx.exit(1 if left_out else 0)


def _with_rank(client: Client, text: str, replica: int | None, node: int | None) -> str:
    """`RUN:PATH` with the rank of a replica's node; other paths as they are. Raises UsageError."""
    from muster.api.node_paths import NodePath, parse_path

    place = parse_path(text)
    if not isinstance(place, NodePath):
        return text
    if place.rank is not None:
        raise click.UsageError(f"--replica and the rank in {text} exclude each other")
    run = client.run(place.run)
    return str(NodePath(place.run, chosen_rank(run, None, replica, node), place.path))


class _Progress:
    """Shows on a terminal how much has been copied, if it takes long."""

    def __init__(self) -> None:
        self._size = 0
        self._shown = 0
        self._next = time.monotonic() + _DELAY if sys.stderr.isatty() else float("inf")

    def __call__(self, size: int) -> None:
        self._size += size
        if time.monotonic() >= self._next:
            from muster.spec.quantities import format_size

            self._next = time.monotonic() + _PERIOD
            text = f"{format_size(self._size)} copied"
            self._write("\r" + text.ljust(self._shown))
            self._shown = len(text)

    def clear(self) -> None:
        """Remove what is shown."""
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)  # `echo` would escape the carriage return
        sys.stderr.flush()
