"""Heartbeats: files that nodes rewrite every few seconds, and the detection of failed nodes."""

from __future__ import annotations

import time
from typing import Any

from muster.bootstrap.workdir import WorkDir
from muster.errors import EngineError

#: Seconds between two heartbeats of a node; longer where the work directory is polled less often.
HEARTBEAT_INTERVAL = 5.0
#: A node has failed after this many missed heartbeats in a row.
_MAX_MISSED = 6


class LeaderConflict(EngineError):  # noqa: N818
    """Another main node uses the same work directory."""

    def __init__(self, workdir: WorkDir) -> None:
        text = f"another main node uses {workdir.location}"
        super().__init__(f"{text}: give each cluster its own JOB_OCID")


class Heartbeat:
    """Writes the heartbeats of one node to `file`.

    replaces: the cluster whose last heartbeat may be overwritten; None if the file does not exist.
    """

    def __init__(
        self, workdir: WorkDir, file: str, cluster: str, replaces: str | None = None
    ) -> None:
        self._workdir = workdir
        self._file = file
        self._may_replace = (None, replaces, cluster)
        self._cluster = cluster
        self._number = 0
        self._due = 0.0
        self._asks = False
        self._answers = False

    def ask(self) -> None:
        """Ask every node that reads our heartbeats for an immediate answer. Raises EngineError."""
        self._asks, self._due = True, 0.0
        self.send()

    def send(self, *, answer: bool = False) -> None:
        """Write a heartbeat if one is due, or if this is the first call with `answer`.

        Raises EngineError; LeaderConflict if another cluster writes the same file.
        """
        if answer and not self._answers:
            self._answers, self._due = True, 0.0
        if time.monotonic() < self._due:
            return
        if cluster_of(self._workdir.read(self._file)) not in self._may_replace:
            raise LeaderConflict(self._workdir)
        heartbeat: dict[str, Any] = {"cluster": self._cluster, "number": self._number + 1}
        heartbeat |= {"asks": True} if self._asks else {}
        heartbeat |= {"answers": True} if self._answers else {}
        self._workdir.write(self._file, heartbeat)
        self._number += 1
        # a write that raised stays due and is repeated at the next call
        self._due = time.monotonic() + HEARTBEAT_INTERVAL


class FailureDetector:
    """Decides from the heartbeats of another node whether that node has failed.

    Only our own clock counts, since the clocks of two machines may differ. interval: seconds
    between two reads of the heartbeat file.
    """

    def __init__(self, cluster: str, interval: float) -> None:
        self._cluster = cluster
        self._period = max(HEARTBEAT_INTERVAL, interval)
        self._last: Any = None
        self._checked: float | None = None
        self._silence = 0.0

    def has_failed(self, heartbeat: Any, now: float) -> bool:
        """Whether too many heartbeats are missing.

        heartbeat: the present content of the file. now: seconds of a monotonic clock. Between two
        calls at most one heartbeat period counts as missing: if more time has passed, this process
        could not read (the store hung, the process was paused), and perhaps the other could not
        write.
        """
        if cluster_of(heartbeat) == self._cluster and heartbeat != self._last:
            self._last, self._silence = heartbeat, 0.0
        elif self._checked is not None:
            self._silence += min(now - self._checked, self._period)
        self._checked = now
        return self._silence > _MAX_MISSED * self._period

    @property
    def suspects(self) -> bool:
        """Whether a heartbeat is missing, though not yet enough of them."""
        return self._silence > 2 * self._period


def cluster_of(data: Any) -> str | None:
    """The id of the cluster that wrote a heartbeat or a stop file; None if the file has none."""
    found = data.get("cluster") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def has_flag(heartbeat: Any, flag: str, cluster: str) -> bool:
    """Whether a heartbeat of this cluster has the flag `asks` or `answers`."""
    return cluster_of(heartbeat) == cluster and heartbeat.get(flag) is True
