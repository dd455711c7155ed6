"""Whether a node's program may have run, told by a mark that outlives agent and supervisor."""

from __future__ import annotations

from collections.abc import Iterable

from muster.lifecycle.status import NodeRef
from muster.node.files import read_regular
from muster.storage.home import RunDir


def begun(run_dir: RunDir, refs: Iterable[NodeRef]) -> frozenset[int]:
    """The ranks of those incarnations whose agent was about to start their first process.

    A machine that loses its power may forget the youngest marks, as it may forget what the
    programs wrote: they are not forced to disk, which would take longer than starting a node.
    """
    return frozenset(ref.rank for ref in refs if _mark(run_dir, ref.rank) == b"%d\n" % ref[1])


def _mark(run_dir: RunDir, rank: int) -> bytes:
    try:
        return read_regular(run_dir.node(rank) / "begun", 32)
    except OSError:
        return b""
