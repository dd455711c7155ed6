"""Beats: by which nodes show that they live, and see whether others do."""

from __future__ import annotations

import time
from typing import Any

from muster.assemble.workdir import WorkDir
from muster.errors import EngineError

#: A node shows that it lives this often (seconds), or at every look if those are rarer.
BEAT_PERIOD = 5.0
#: It is gone if it did not so many times in a row.
_BEATS = 6


class Ousted(EngineError):  # noqa: N818
    """Another main node is where we want to be, or were."""

    def __init__(self, workdir: WorkDir) -> None:
        text = f"another main node is at work in {workdir.place}"
        super().__init__(f"{text}: give each cluster a JOB_OCID of its own")


class Heart:
    """Shows in a file that a node lives. dead: the cluster whose last beat is in that file; None if
    there is none."""

    def __init__(self, workdir: WorkDir, file: str, cluster: str, dead: str | None = None) -> None:
        self._workdir = workdir
        self._file = file
        self._ours = (None, dead, cluster)
        self._cluster = cluster
        self._number = 0
        self._due = 0.0
        self._asks = False
        self._answers = False

    def ask(self) -> None:
        """Have all who see our beats answer at once. Raises EngineError."""
        self._asks, self._due = True, 0.0
        self.beat()

    def beat(self, *, asked: bool = False) -> None:
        """Show it, if it is time to, or if we are asked for the first time. Raises EngineError;
        Ousted if another cluster beats there."""
        if asked and not self._answers:
            self._answers, self._due = True, 0.0
        if time.monotonic() < self._due:
            return
        if cluster_of(self._workdir.read(self._file)) not in self._ours:
            raise Ousted(self._workdir)
        beat: dict[str, Any] = {"cluster": self._cluster, "number": self._number + 1}
        beat |= {"asks": True} if self._asks else {}
        beat |= {"answers": True} if self._answers else {}
        self._workdir.write(self._file, beat)
        self._number += 1
        self._due = time.monotonic() + BEAT_PERIOD  # after one that failed: at once


class Pulse:
    """Whether another node still lives, by our own clock: clocks of two machines may differ.

    interval: seconds between two looks. now: those of a clock that only goes forward.
    """

    def __init__(self, cluster: str, interval: float) -> None:
        self._cluster = cluster
        self._period = max(BEAT_PERIOD, interval)
        self._seen: Any = None
        self._looked: float | None = None
        self._quiet = 0.0

    def gone(self, beat: Any, now: float) -> bool:
        """Whether it has not shown for too long. beat: what is in its file now.

        Between two looks no more time counts than a beat takes: if it was more, we could not look
        (the store hung, we were paused), and the other may not have been able to show.
        """
        if cluster_of(beat) == self._cluster and beat != self._seen:
            self._seen, self._quiet = beat, 0.0
        elif self._looked is not None:
            self._quiet += min(now - self._looked, self._period)
        self._looked = now
        return self._quiet > _BEATS * self._period

    @property
    def quiet(self) -> bool:
        """Whether it has missed a beat."""
        return self._quiet > 2 * self._period


def cluster_of(data: Any) -> str | None:
    """The cluster that wrote a beat or a stop; None if it does not say."""
    found = data.get("cluster") if isinstance(data, dict) else None
    return found if isinstance(found, str) else None


def says(data: Any, what: str, cluster: str) -> bool:
    """Whether a beat of that cluster `asks`, or `answers`."""
    return cluster_of(data) == cluster and data.get(what) is True
