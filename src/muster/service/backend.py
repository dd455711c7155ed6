"""One MUSTER_HOME in this process: its store and the launcher of supervisors."""

from __future__ import annotations

from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from muster.control.open_store import open_store
from muster.control.recover import record_broken
from muster.errors import EngineError
from muster.service.audit import ReadLog
from muster.storage.home import Home
from muster.store.sqlite.disk_reserve import Reserve
from muster.submission import Submission
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.control.launcher import Launcher
    from muster.iam.current_policies import CurrentPolicies
    from muster.storage.artifact_lock import ArtifactLock
    from muster.storage.key_pool import KeyPool
    from muster.store.base import Store
    from muster.store.records import Lease


class Backend:
    """What the use cases of all callers share. Threads may share a backend."""

    def __init__(self, home: Home, launcher: Launcher | None = None) -> None:
        self.home = home
        self.lock = RLock()
        #: When `recovery.recover_at_times` last looked for runs, on the monotonic clock.
        self.recovered_at: float | None = None
        #: Whether that is done by a thread of a server, rather than with each request.
        self.recovers_apart = False
        #: Seconds to wait for a database server that does not answer yet.
        self.database_timeout = 0.0
        #: Keys for the credentials of runs, of a server.
        self.keys: KeyPool | None = None
        self._warned_of_space = False
        self._launcher = launcher
        self._store: Store | None = None
        self._policies: CurrentPolicies | None = None
        #: Which reads the audit log has.
        self.reads = ReadLog()
        self._reserve = Reserve(home.reserve)
        self._artifact_lock: ArtifactLock | None = None

    @property
    def artifact_lock(self) -> ArtifactLock:
        """Code that this process has stored and not yet recorded with a Job."""
        from muster.storage.artifact_lock import ArtifactLock  # for commands that submit a Job

        with self.lock:
            if self._artifact_lock is None:
                self._artifact_lock = ArtifactLock(self.home)
            return self._artifact_lock

    @property
    def store(self) -> Store:
        """The store, opened at the first access; MUSTER_HOME is created if it is missing.

        Raises InvalidInput, StoreError.
        """
        with self.lock:
            if self._store is None:
                self._store = self._open()
            return self._store

    @property
    def policies(self) -> CurrentPolicies:
        """The policies of the store, which decide what users and runs may do."""
        from muster.iam.current_policies import CurrentPolicies  # not for the user of the machine

        with self.lock:
            if self._policies is None:
                self._policies = CurrentPolicies(lambda: self.store)
            return self._policies

    def policies_changed(self) -> None:
        """What this process has changed is to decide the next request."""
        if self._policies is not None:
            self._policies.changed()

    def _open(self) -> Store:
        if self.home.read_only():
            return open_store(self.home, create=False)
        self.home.prepare()
        store = open_store(self.home, timeout=self.database_timeout)
        if self.home.database.exists():  # what the reserve is for
            self._reserve.restore()
        return store

    @property
    def space_mark(self) -> Path:
        """A file that changes when the disk becomes full."""
        return self._reserve.mark

    def space_warning(self) -> str:
        """A warning if the disk of MUSTER_HOME is full, once; else ""."""
        lacks_space = self._reserve.lacks_space
        if self._warned_of_space or not lacks_space or self.home.read_only():
            return ""
        self._warned_of_space = True
        return (
            f"the disk of {self.home.root} is full or nearly full: events of runs are recorded in "
            "a small reserve, or not at all; free some space (`muster disk`, `muster prune`)"
        )

    def start_supervisor(
        self,
        lease: Lease,
        engine: str,
        held: tuple[int, int],
        submission: Submission,
        *,
        shared: bool = False,
    ) -> None:
        """Start a supervisor process for a run.

        lease: of the run. engine: the name of its engine. held: descriptors of its lock and of its
        liveness pipe. The supervisor takes over lease and descriptors. submission: what the nodes
        start from. shared: see `Launcher.start`.
        Raises EngineError if the process cannot be started; the run has FAILED then.
        """
        from muster.control.launcher import LauncherClosed

        try:
            launcher = self._use_launcher()
            launcher.start(self.home.root, lease, engine, held, submission, shared=shared)
        except LauncherClosed:  # with a new one
            self.start_supervisor(lease, engine, held, submission, shared=shared)
        except EngineError as error:
            record_broken(self.store, self.home, lease, str(error))
            raise

    @as_root()
    def _use_launcher(self) -> Launcher:
        from muster.control.launcher import Launcher  # few commands start a run

        with self.lock:
            if self._launcher is not None and self._launcher.inherited:
                self._close_launcher()  # the connection of the process that forked this one
            if self._launcher is None or self._launcher.closed:
                self._launcher = Launcher.spawn()
            return self._launcher

    def _close_launcher(self) -> None:
        with self.lock:
            launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.close()

    def close(self) -> None:
        """Close the database and the launcher. Runs continue."""
        self._close_launcher()
        if self.keys is not None:
            self.keys.close()
        if self._store is not None:
            self._store.close()
