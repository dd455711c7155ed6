"""What a watcher reports to runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from muster.engines.kubernetes.pod_facts import JobSetFacts, PodFacts


class Away(Struct, frozen=True):
    """Nothing is known of the cluster since a time (epoch seconds), or it is known again."""

    since: float
    why: str
    is_back: bool = False


class PodChanged(Struct, frozen=True):
    """A pod is there, or has changed. is_gone: it is not in the cluster any more, and these are its
    last facts."""

    pod: PodFacts
    is_gone: bool = False


class JobSetChanged(Struct, frozen=True):
    """A JobSet or, without JobSet in the cluster, a Job. See `PodChanged`."""

    jobset: JobSetFacts
    is_gone: bool = False


class Listed(Struct, frozen=True):
    """All objects of a kind were reported: those that were not do not exist."""

    kind: str


Change = PodChanged | JobSetChanged | Listed | Away


class ChangesByRun:
    """Those of several runs."""

    def __init__(self) -> None:
        self._by_run: dict[str, list[Change]] = defaultdict(list)

    def add(self, run: str, change: Change) -> None:
        """One more."""
        self._by_run[run].append(change)

    def of(self, run: str) -> Sequence[Change]:
        """Those of one run."""
        return self._by_run.get(run, ())
