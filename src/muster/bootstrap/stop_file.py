"""The file `stop`, which ends the cluster.

A stop file that a node wrote names its cluster and applies to that one only: an earlier cluster of
the same job may still be ending. A stop file without a name comes from the user and applies to all.
"""

from __future__ import annotations

from typing import Any

from muster.bootstrap.heartbeats import cluster_of
from muster.bootstrap.workdir import HEARTBEAT, STOP, WorkDir
from muster.errors import EngineError


class Stopped(EngineError):  # noqa: N818
    """The cluster was stopped before this node had started."""

    def __init__(self, stop: Any) -> None:
        super().__init__(stop_message(stop))
        #: See `is_success`.
        self.success = is_success(stop)


def read_stop(workdir: WorkDir, cluster: str | None) -> Any:
    """The stop file that applies to the cluster; None without one. Raises EngineError."""
    stop = workdir.read(STOP)
    return None if cluster is not None and cluster_of(stop) not in (None, cluster) else stop


def stop_message(stop: Any) -> str:
    """The reason that the stop file gives."""
    why = stop.get("why") if isinstance(stop, dict) else None
    return f"the cluster was stopped: {why or 'a stop file was found'}"


def is_success(stop: Any) -> bool:
    """Whether the cluster ended as intended: its program succeeded, its user stopped it, or its
    time to live expired."""
    return not (isinstance(stop, dict) and stop.get("failed"))


def write_stop(
    workdir: WorkDir, cluster: str, why: str, *, failed: bool, cause: str | None = None
) -> None:
    """Stop all nodes of the cluster.

    Does nothing if a stop file exists, or if another cluster has taken over the work directory: the
    nodes of this cluster notice that by themselves. cause: the node that failed first
    (`Member.run`). Raises EngineError.
    """
    replaced = cluster_of(workdir.read(HEARTBEAT)) not in (None, cluster)
    if not replaced and read_stop(workdir, cluster) is None:
        workdir.write(STOP, {"why": why, "failed": failed, "cluster": cluster, "cause": cause})


def names_as_cause(stop: Any, run: str) -> bool:
    """Whether the stop file names this node as the first that failed."""
    return isinstance(stop, dict) and stop.get("cause") == run
