"""Which pod each node of an observed JobSet has: recorded in the run's folder for commands that
enter a node, or measure it, and for later sessions. A new pod of a node is a new line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from muster.engines.kubernetes.ended_pods import ENDED, read_ended
from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.engines.kubernetes.places import Places
from muster.node.files import open_regular, read_regular
from muster.storage.home import RunDir

#: The file in the run's folder.
_FILE = "observed.pods"


class NodePod(Struct, frozen=True):
    """The pod of a node."""

    rank: int
    uid: str
    name: str
    #: Its main container.
    container: str
    #: See `ObservedPod`.
    accepted_at: str
    restarts: int

    @property
    def age(self) -> tuple[int, str]:
        """Of two pods of a node, the greater one is newer."""
        return self.restarts, self.accepted_at


class ObservedPods:
    """Records the pods that run."""

    def __init__(self, folder: RunDir, places: Places) -> None:
        self._path, self._places = folder.path / _FILE, places
        self._known = {one.uid for one in _read(self._path)}

    def see(self, pods: Iterable[ObservedPod]) -> None:
        """These have changed."""
        new = [one for pod in pods if (one := self._new(pod)) is not None]
        if not new:
            return
        # each begins a line of its own, as the last one may have been cut off
        text = b"".join(b"\n" + msgspec.json.encode(one) for one in new)
        with contextlib.suppress(OSError):  # a full disk: they are recorded when they change again
            descriptor = open_regular(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as file:
                file.write(text)
            self._known |= {one.uid for one in new}

    def _new(self, pod: ObservedPod) -> NodePod | None:
        if not pod.runs or pod.uid in self._known:
            return None
        rank = self._places.rank_of(pod)
        if rank is None:
            return None
        return NodePod(rank, pod.uid, pod.name, pod.container, pod.accepted_at, pod.restarts)


def read_pods(folder: RunDir) -> dict[int, NodePod]:
    """The newest pod of each node, by rank, without those whose ends were reported. Raises
    OSError."""
    ended = {one.uid for one in read_ended(folder.path / ENDED)}
    found: dict[int, NodePod] = {}
    for one in _read(folder.path / _FILE):
        known = found.get(one.rank)
        if known is None or one.age >= known.age:
            found[one.rank] = one
    return {rank: one for rank, one in sorted(found.items()) if one.uid not in ended}


def recorded_ranks(folder: RunDir) -> dict[str, int]:
    """The ranks of the pods that have run or ended, by uid. Raises OSError."""
    running = {one.uid: one.rank for one in _read(folder.path / _FILE)}
    return running | {one.uid: one.ref.rank for one in read_ended(folder.path / ENDED)}


def _read(path: Path) -> list[NodePod]:
    """Raises OSError."""
    try:
        lines = read_regular(path).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):  # it was cut off
            found.append(msgspec.json.decode(line, type=NodePod))
    return found
