"""The files of an incarnation in its node's folder: output files, the start marker, and files of
the incarnation before that must not be taken for its own."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Dict, List, MutableMapping, NamedTuple, Sequence, Tuple

from muster.node import error_file
from muster.node.files import is_within, open_or_replace, remove_unless_regular
from muster.node.launch_message import LaunchMessage, OutputFiles

#: Tells a launcher which output files its ranks have.
RANK_OUTPUTS = "MUSTER_RANKS"


def prepare_outputs(launch: LaunchMessage) -> None:
    """Make sure that all output files can be opened. Raises OSError.

    The incarnation before may have replaced one by a FIFO, and a process that opens a FIFO to write
    blocks until a reader opens it.
    """
    paths = [path for p in launch.processes for path in (p.stdout, p.stderr)]
    paths += [path for s in launch.services for path in (s.stdout, s.stderr)]
    for path in filter(None, paths):
        remove_unless_regular(path)
    for rank in launch.ranks:
        for path in rank:
            os.close(open_rank_output(path))  # the hang detector watches only files that exist


def clear_stale_state(launch: LaunchMessage) -> None:
    """Remove the error files and the probe's file of the incarnation before."""
    for process in launch.processes:
        if process.error_file is not None:
            error_file.remove(process.error_file)
    ready_file = launch.probe.file if launch.probe is not None else None
    # a file elsewhere may belong to another node: a node may wait for what another has done
    if ready_file and is_within(ready_file, launch.folder):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(ready_file)


def record_start(folder: str, incarnation: int, rank: int) -> None:
    """Record that the program of this incarnation of a rank may run from now on.

    A supervisor that recovers the run reads the file `begun`. It is written with one write: without
    the complete line, no process of the incarnation was started.
    """
    line = b"%d %d\n" % (incarnation, rank)
    descriptor = open_or_replace(os.path.join(folder, "begun"), os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, line)
        # a file that was truncated before is written to the disk when it is closed (ext4)
        if os.fstat(descriptor).st_size > len(line):
            os.ftruncate(descriptor, len(line))
    finally:
        os.close(descriptor)


# --- output files of the ranks that a launcher starts. They are appended to, so that a rank that
# the launcher restarts keeps what it wrote before.


class RankOutputs(NamedTuple):
    """What a launcher needs to know about the output of its ranks."""

    #: (stdout, stderr) of each local rank.
    files: List[Tuple[str, str]]
    #: Where the launcher records why the rank at fault has failed (see `error_file`).
    error_file: str


def rank_outputs_variable(ranks: Sequence[OutputFiles], error_path: str | None) -> Dict[str, str]:
    """The variable for the launcher; empty if its ranks write to the launcher's own output.

    error_path: see `RankOutputs.error_file`.
    """
    return {RANK_OUTPUTS: json.dumps([ranks, error_path])} if ranks else {}


def pop_rank_outputs(environ: MutableMapping[str, str]) -> RankOutputs | None:
    """Read the variable and remove it, so that ranks do not inherit it; None if it is not set."""
    value = environ.pop(RANK_OUTPUTS, None)
    if value is None:
        return None
    files, error_path = json.loads(value)
    return RankOutputs([(stdout, stderr) for stdout, stderr in files], error_path)


def open_rank_output(path: str) -> int:
    """Open an output file for a rank to inherit; returns the descriptor. Raises OSError."""
    descriptor = open_or_replace(path, os.O_WRONLY | os.O_APPEND, 0o644)
    os.set_blocking(descriptor, True)
    return descriptor
