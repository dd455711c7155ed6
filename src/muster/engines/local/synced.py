"""Mounts that take their time: nodes wait for the contents of URLs, and for NFS exports to be
mounted; the run's end waits for URLs to be written back.

That is done by processes of their own: the library for it is too heavy for a supervisor, which must
not wait for a server either.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.local.mounting import mount_commands
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node.files import make_way
from muster.plan.model import MountPlan, RunPlan
from muster.storage.mounts import SYNC_URL
from muster.storage.notify import Watcher

Direction = Literal["in", "out"]


class Released(Struct, frozen=True):
    """What may go on now that copying is done. nodes: to start; ends: to tell."""

    nodes: tuple[NodeRef, ...] = ()
    ends: tuple[NodeEnded, ...] = ()


class SyncedMounts:
    """The URLs and NFS exports of one run. placed: source -> the folder that shows it.

    They are copied in once; whatever attempt comes next goes on with what is there.
    """

    def __init__(self, plan: RunPlan, placed: dict[str, Path]) -> None:
        mounts = [m for group in plan.groups for m in group.mounts if m.kind == "url"]
        self._placed = placed
        self._sources: dict[Direction, list[str]] = {
            "in": _sources(mounts),
            "out": _sources([m for m in mounts if not m.read_only]),
        }
        self._copying: dict[int, str] = {}  # pid -> source
        self._direction: Direction = "in"
        self._exports = mount_commands(plan, placed)  # that are not mounted yet, by source
        self._here = not (self._sources["in"] or self._exports)  # all has been copied or mounted
        self._again = False  # a checkpoint came while copying
        self._aborted = False
        self._errors: list[str] = []
        self._waiting: list[NodeRef] = []
        self._held: list[NodeEnded] = []
        self._checkpoints = Watcher() if self._sources["out"] else None
        self._begin("in")

    # --- holding back

    def hold_start(self, nodes: Sequence[NodeRef]) -> bool:
        """Whether these nodes have to wait; they are released later."""
        if not self._here and not self._copying:
            self._begin("in")  # what failed before may be there by now
        if self._copying:
            self._waiting += [node for node in nodes if node not in self._waiting]
        return bool(self._copying)

    def hold_end(self, event: NodeEnded) -> bool:
        """Whether the last node's end has to wait for the mounts to be written back."""
        if not self._sources["out"]:
            return False
        self._held.append(event)
        self._begin("out")
        return True

    def give_up(self, nodes: Sequence[NodeRef]) -> list[NodeEnded]:
        """Nodes that wait never start; nothing is copied in for nobody."""
        gone = [node for node in self._waiting if node in nodes]
        self._waiting = [node for node in self._waiting if node not in gone]
        if gone and not self._waiting and self._direction == "in":
            self.abort()
        return [_not_started(node) for node in gone]

    def holds_end_of(self, nodes: Sequence[NodeRef]) -> bool:
        """Whether the end of one of these is held."""
        return any((event.rank, event.incarnation) in nodes for event in self._held)

    # --- checkpoints

    def watch(self, folder: Path) -> None:
        """Write the mounts back whenever the checkpoint file of a node grows. folder: the node's.
        Raises OSError."""
        if self._checkpoints is not None:
            folder.mkdir(parents=True, exist_ok=True)
            checkpoint = folder / "checkpoint"
            make_way(checkpoint)
            checkpoint.touch()
            self._checkpoints.add(checkpoint)

    def watched(self) -> int | None:
        """The descriptor to wait on for checkpoints; None where there is none."""
        return None if self._checkpoints is None else self._checkpoints.fileno()

    def patience(self) -> float | None:
        """Seconds after which `look` wants to be called although nothing happened."""
        return None if self._checkpoints is None else self._checkpoints.timeout()

    def look(self) -> None:
        """Write back if a node has said that it saved a checkpoint."""
        if self._checkpoints is not None and self._checkpoints.drain():
            self._begin("out")

    # --- copying

    def pids(self) -> set[int]:
        """The processes that copy."""
        return set(self._copying)

    def reaped(self, pid: int, status: int) -> Released | None:
        """What may go on, if the process that ended was one of ours; None if it was not."""
        source = self._copying.pop(pid, None)
        if source is None:
            return None
        if status != 0:
            self._errors.append(self._trouble(source))
        else:
            self._exports.pop(source, None)
        if self._copying:
            return Released()
        if self._direction == "in":
            self._here = not self._errors
        if not self._here and self._aborted and self._waiting:
            self._begin("in")  # given up for others; these have come since
            return Released()
        if self._again:
            self._again = False
            self._begin("out")
            return Released()
        return self._release()

    def abort(self) -> None:
        """End copying now."""
        self._again = False
        self._aborted = True
        for pid in self._copying:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and is not reaped yet
                os.kill(pid, signal.SIGKILL)

    def _begin(self, direction: Direction) -> None:
        if self._copying:
            self._again = True
            return
        self._direction, self._aborted = direction, False
        self._errors = []  # only the last word counts: an earlier copy may have been made good
        for source, command in self._exports.items() if direction == "in" else ():
            self._placed[source].mkdir(parents=True, exist_ok=True)
            self._copying[os.posix_spawnp(command[0], command, os.environ)] = source
        for source in self._sources[direction]:
            where = self._placed[source]
            where.mkdir(parents=True, exist_ok=True)
            # what is only read has to be there; what is written may be made by the run
            verb = "need" if direction == "in" and source not in self._sources["out"] else direction
            argv = [sys.executable, "-m", "muster.storage.sync", verb, str(where)]
            environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), SYNC_URL: source}
            self._copying[os.posix_spawn(sys.executable, argv, environ)] = source

    def _trouble(self, source: str) -> str:
        if source not in self._exports:
            return f"cannot synchronise {source}: see the run's supervisor.log"
        return (
            f"cannot mount {source} (its error is in the run's supervisor.log); "
            "mount it yourself and give the directory as the source"
        )

    def _release(self) -> Released:
        nodes, ends = tuple(self._waiting), tuple(self._held)
        self._waiting, self._held = [], []
        if not self._errors:
            return Released(nodes, ends)
        text = "\n".join(self._errors)
        failed = tuple(
            replace(e, exit_code=e.exit_code or 1, reason=Reason.OUTPUT_LOST, message=text)
            for e in ends
        )
        if self._here:  # that it cannot be written back is no reason not to go on with it
            return Released(nodes, failed)
        return Released(ends=failed + tuple(_not_started(node, text) for node in nodes))


def _not_started(node: NodeRef, message: str = "") -> NodeEnded:
    return NodeEnded(
        node.rank,
        None,
        reason=Reason.NOT_STARTED,
        message=message,
        incarnation=node.incarnation,
    )


def _sources(mounts: Sequence[MountPlan]) -> list[str]:
    return list(dict.fromkeys(mount.source for mount in mounts))
