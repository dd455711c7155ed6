"""Mounts of URLs and NFS exports. Nodes start once URLs are copied and exports are mounted, and the
run ends once changes are written back to the URLs.

Child processes copy and mount: the supervisor must not wait for a server, and the library for URLs
takes too long to import.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.local.mounts import nfs_mount_commands
from muster.engines.node_ends import not_started
from muster.lifecycle.events import NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node.file_watch import Watcher
from muster.node.files import remove_unless_regular
from muster.plan.model import MountPlan, RunPlan
from muster.secrets import without_credentials
from muster.storage.sync_process import REFUSAL, REFUSED, Access, Verb, sync_process
from muster.unix_account import current, process_options

Direction = Literal["in", "out"]


class Released(Struct, frozen=True):
    """What waited for a copy that is now done."""

    #: Nodes to start.
    nodes: tuple[NodeRef, ...] = ()
    #: Ends of nodes to report.
    ends: tuple[NodeEnded, ...] = ()


class SyncedMounts:
    """The URLs and NFS exports of one run.

    sources: the local folder of each source. access: to URLs.

    URLs are copied to their local folders once; later attempts continue with the local files.
    """

    def __init__(self, plan: RunPlan, sources: Mapping[str, Path], access: Access) -> None:
        mounts = [m for group in plan.groups for m in group.mounts if m.kind == "url"]
        self._folders = sources
        self._access = access
        self._sources: dict[Direction, list[str]] = {
            "in": _sources(mounts),
            "out": _sources([m for m in mounts if not m.read_only]),
        }
        self._copying: dict[int, str] = {}  # pid -> source
        self._direction: Direction = "in"
        self._exports = nfs_mount_commands(plan, sources)  # not mounted yet, by source
        self._available = not (self._sources["in"] or self._exports)  # all copied and mounted
        self._write_back_again = False  # a checkpoint was saved while copying
        self._aborted = False
        self._errors: list[str] = []
        self._waiting: list[NodeRef] = []
        self._held: list[NodeEnded] = []
        self._checkpoints = Watcher() if self._sources["out"] else None
        self._copy("in")

    def hold_start(self, nodes: Sequence[NodeRef]) -> bool:
        """Whether these nodes have to wait. If so, `reaped` releases them later."""
        if not self._available and not self._copying:
            self._copy("in")  # what failed before may work now
        if self._copying:
            self._waiting += [node for node in nodes if node not in self._waiting]
        return bool(self._copying)

    def hold_end(self, event: NodeEnded) -> bool:
        """Whether the end of the run's last node has to wait until URLs are written back. If so,
        `reaped` releases it later."""
        if not self._sources["out"]:
            return False
        self._held.append(event)
        self._copy("out")
        return True

    def cancel_start(self, nodes: Sequence[NodeRef]) -> list[NodeEnded]:
        """Stop waiting with these nodes; returns their ends. Copying ends if no node waits."""
        canceled = [node for node in self._waiting if node in nodes]
        self._waiting = [node for node in self._waiting if node not in canceled]
        if canceled and not self._waiting and self._direction == "in":
            self.abort()
        return [not_started(node, "") for node in canceled]

    def holds_end_of(self, nodes: Sequence[NodeRef]) -> bool:
        """Whether the end of one of these nodes waits for a copy."""
        return any((event.rank, event.incarnation) in nodes for event in self._held)

    def watch_checkpoints(self, folder: Path) -> None:
        """Write URLs back whenever a node's checkpoint file grows. folder: the node's. Raises
        OSError."""
        if self._checkpoints is not None:
            folder.mkdir(parents=True, exist_ok=True)
            checkpoint = folder / "checkpoint"
            remove_unless_regular(checkpoint)
            checkpoint.touch()
            self._checkpoints.add(checkpoint)

    def watched(self) -> int | None:
        """The descriptor to poll for checkpoints; None if there is nothing to write back."""
        return None if self._checkpoints is None else self._checkpoints.fileno()

    def timeout(self) -> float | None:
        """Seconds after which to call `write_back_checkpoints` even if nothing happens."""
        return None if self._checkpoints is None else self._checkpoints.timeout()

    def write_back_checkpoints(self) -> None:
        """Write URLs back if a node has reported a checkpoint."""
        if self._checkpoints is not None and self._checkpoints.drain():
            self._copy("out")

    def pids(self) -> set[int]:
        """The processes that copy and mount."""
        return set(self._copying)

    def reaped(self, pid: int, status: int) -> Released | None:
        """Handle the end of a child process. Returns what no longer has to wait; None if the
        process is not one of this object's."""
        source = self._copying.pop(pid, None)
        if source is None:
            return None
        if status != 0:
            self._errors.append(self._error(source, status))
        else:
            self._exports.pop(source, None)
        if self._copying:
            return Released()
        if self._direction == "in":
            self._available = not self._errors
        if not self._available and self._aborted and self._waiting:
            self._copy("in")  # aborted for other nodes; these came later
            return Released()
        if self._write_back_again:
            self._write_back_again = False
            self._copy("out")
            return Released()
        return self._release()

    def abort(self) -> None:
        """Kill the processes that copy."""
        self._write_back_again = False
        self._aborted = True
        for pid in self._copying:
            with contextlib.suppress(ProcessLookupError):  # it has ended and is not reaped yet
                os.kill(pid, signal.SIGKILL)

    def _copy(self, direction: Direction) -> None:
        if self._copying:
            self._write_back_again = True
            return
        self._direction, self._aborted = direction, False
        self._errors = []  # only the last copy counts: it may have mended an earlier one
        for source, command in self._exports.items() if direction == "in" else ():
            self._folders[source].mkdir(parents=True, exist_ok=True)
            self._copying[os.posix_spawnp(command[0], command, self._access.environ)] = source
        for source in self._sources[direction]:
            folder = self._folders[source]
            folder.mkdir(parents=True, exist_ok=True)
            # a source that is only read must exist; the run may create one that it writes to
            needed = direction == "in" and source not in self._sources["out"]
            verb: Verb = "need" if needed else direction
            argv, environ = sync_process(verb, folder, source, self._access)
            self._copying[_start(argv, environ)] = source

    def _error(self, source: str, status: int) -> str:
        """status: of the process, as of `os.wait`."""
        shown = without_credentials(source)  # the message is stored with the run
        if os.waitstatus_to_exitcode(status) == REFUSED and source not in self._exports:
            return f"cannot synchronize {shown}: {REFUSAL}"
        if source not in self._exports:
            written = self._direction == "out" or source in self._sources["out"]
            if why := self._access.explain(source, written=written):
                return f"cannot synchronize {shown}: {why}"
            return f"cannot synchronize {shown}: see the run's supervisor.log"
        return (
            f"cannot mount {shown} (its error is in the run's supervisor.log); "
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
        if self._available:  # nodes can use the local files, even if they cannot be written back
            return Released(nodes, failed)
        return Released(ends=failed + tuple(not_started(node, text) for node in nodes))


def _sources(mounts: Sequence[MountPlan]) -> list[str]:
    return list(dict.fromkeys(mount.source for mount in mounts))


def _start(argv: list[str], environ: Mapping[str, str]) -> int:
    """Start a process. Returns its pid. It runs with the submitter's variables, which may name
    programs, and so as whom the nodes run as."""
    if current() is None:
        return os.posix_spawn(argv[0], argv, environ)
    import subprocess  # only a server's runs have accounts

    process = subprocess.Popen(argv, env=environ, **process_options())
    process.returncode = 0  # the session waits for it
    return process.pid
