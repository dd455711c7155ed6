"""URLs that a job mounts: each has a folder here, of which nodes on other machines get copies as of
any directory. This machine has the libraries and the credentials; the nodes' machines need none.

A URL is copied into its folder once, and later nodes continue with its files. What nodes bring back
is copied on to the URL. Other processes do that (`storage.sync`), and the calls here wait for them:
they are for threads.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path

from muster.plan.model import RunPlan
from muster.secrets import redacted
from muster.storage.home import RunDir
from muster.storage.sync_process import Access, Verb, sync_process

_CANCELED = "it was canceled"


class UrlFolders:
    """The URLs of a run. limit: the most bytes of one."""

    def __init__(self, plan: RunPlan, run_dir: RunDir, access: Access, limit: int) -> None:
        mounts = [m for group in plan.groups for m in group.mounts if m.kind == "url"]
        sources = dict.fromkeys(mount.source for mount in mounts)
        self._folders = {one: run_dir.mounts / str(n) for n, one in enumerate(sources)}
        self._writable = {mount.source for mount in mounts if not mount.read_only}
        self._access, self._limit = access, limit
        self._fetched: set[str] = set()
        self._lock = threading.Lock()  # for what follows
        self._processes: dict[subprocess.Popen[str], tuple[str, int | None]] = {}
        self._canceled: set[str] = set()  # URLs that are not written any more
        self._closed = False

    def folder(self, source: str) -> Path | None:
        """The folder of a URL; None for other sources."""
        return self._folders.get(source)

    def fetch(self, source: str) -> None:
        """Copy a URL into its folder, unless that was done. Raises OSError."""
        if source in self._fetched:
            return
        folder = self._folders[source]
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        # one that is only read must have files; the run may create one that it writes to
        self._run("in" if source in self._writable else "need", source, None)
        self._fetched.add(source)

    def send(self, source: str, slot: int) -> None:
        """Copy what has changed in the folder to the URL. slot: the node whose end waits for it.
        Raises OSError."""
        self._run("out", source, slot)

    def _run(self, verb: Verb, source: str, slot: int | None) -> None:
        limit = None if verb == "out" else self._limit
        argv, environ = sync_process(verb, self._folders[source], source, self._access, limit)
        with self._lock:
            if self._closed or (verb == "out" and source in self._canceled):
                raise OSError(_CANCELED)
            process = subprocess.Popen(
                argv, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._processes[process] = (source, slot)
        try:
            _, errors = process.communicate()
        finally:
            with self._lock:
                del self._processes[process]
        if process.returncode == 0:
            return
        sys.stderr.write(errors)
        if process.returncode > 0 and (
            refused := self._access.explain(source, written=source in self._writable)
        ):
            raise OSError(refused)
        lines = [line for line in errors.splitlines() if line.strip()]
        if process.returncode < 0 or not lines:
            raise OSError(_CANCELED if process.returncode < 0 else "see supervisor.log")
        why = lines[-1].removeprefix(f"{redacted(source)}: ")
        more = f" (and {len(lines) - 1} more lines in supervisor.log)" if len(lines) > 1 else ""
        raise OSError(f"{why}{more}")

    def cancel(self, slots: Collection[int]) -> None:
        """The ends of these nodes are not to wait any longer: URLs that do not get what the nodes
        have brought back are not written again before `starting`."""
        with self._lock:
            for process, (source, slot) in self._processes.items():
                if slot in slots:
                    self._canceled.add(source)
                    process.kill()

    def starting(self) -> None:
        """Nodes are about to start: what they bring back is written again."""
        with self._lock:
            self._canceled.clear()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            for process in self._processes:
                process.kill()
