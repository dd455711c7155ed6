"""The file `stop`: who writes it ends the cluster.

One that a node wrote names its cluster, and means nobody else: an earlier cluster of the same job
may still be ending. One that names none is its owner's, and means all.
"""

from __future__ import annotations

from typing import Any

from muster.assemble.beats import cluster_of
from muster.assemble.workdir import BEAT, STOP, WorkDir
from muster.errors import EngineError


class Stopped(EngineError):  # noqa: N818
    """The cluster was told to end before this node had begun. well: see `stopped_well`."""

    def __init__(self, stop: Any) -> None:
        super().__init__(stop_text(stop))
        self.well = stopped_well(stop)


def read_stop(workdir: WorkDir, cluster: str | None) -> Any:
    """What ends that cluster; None if nothing does. Raises EngineError."""
    stop = workdir.read(STOP)
    return None if cluster is not None and cluster_of(stop) not in (None, cluster) else stop


def stop_text(stop: Any) -> str:
    """Why, as whoever wrote the file says."""
    why = stop.get("why") if isinstance(stop, dict) else None
    return f"the cluster was stopped: {why or 'a stop file was found'}"


def stopped_well(stop: Any) -> bool:
    """Whether that was its purpose: the program had ended, or its owner or the time said so."""
    return not (isinstance(stop, dict) and stop.get("failed"))


def say_stop(
    workdir: WorkDir, cluster: str, why: str, *, failed: bool, cause: str | None = None
) -> None:
    """Have every node of the cluster end, unless that was said already, or another cluster has
    taken its place: that one's word would be lost, and ours notice anyway. cause: the node that
    failed first (`Member.run`). Raises EngineError."""
    if cluster_of(workdir.read(BEAT)) in (None, cluster) and read_stop(workdir, cluster) is None:
        word = {"why": why, "failed": failed, "cluster": cluster, "cause": cause}
        workdir.write(STOP, word)


def blames(stop: Any, run: str) -> bool:
    """Whether that node failed first."""
    return isinstance(stop, dict) and stop.get("cause") == run
