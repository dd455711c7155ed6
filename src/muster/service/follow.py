"""Follow a run: wait until its files change or its supervisor ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from muster.api.streams import Notice
from muster.control import lease
from muster.control.supervisor_check import SupervisorCheck
from muster.errors import NotFound
from muster.service.context import Context
from muster.service.wait import notices, recover_or_wait
from muster.storage.file_watch import Watcher, wait_for
from muster.storage.home import Home
from muster.storage.liveness import watch_liveness


def follow(context: Context, run_id: str) -> Follower:
    """A follower of a run, to be closed. Raises InvalidInput if another host drives the run, since
    the kernel does not notify this one."""
    folder, name = context.home.run_dir(run_id), context.store.runs.summary(run_id).name
    lease.check_host(folder.lease, name)
    return Follower(
        context.home,
        run_id,
        check=SupervisorCheck(folder, name),
        space_mark=context.backend.space_mark,
        recover=partial(recover_or_wait, context, run_id),
        notices=partial(notices, context),
    )


class Follower:
    """Waits for changes of a run. The kernel notifies it: it does not poll."""

    def __init__(
        self,
        home: Home,
        run_id: str,
        *,
        check: SupervisorCheck,
        space_mark: Path,
        recover: Callable[[], object],
        notices: Callable[[SupervisorCheck], Iterator[Notice]],
    ) -> None:
        """space_mark: a file that changes when the disk becomes full. recover: recovers the run if
        it has no supervisor; raises NotFound if it was deleted. notices: those that are due."""
        self._home = home
        self._run_id = run_id
        self._check = check
        self._space_mark = space_mark
        self._recover = recover
        self._due_notices = notices
        self._notices: list[Notice] = []
        self._watcher = Watcher()
        self._watched: set[Path] = set()
        self._supervisor = watch_liveness(home, run_id)

    @property
    def ended(self) -> bool:
        """Whether the run has no supervisor any more."""
        return self._supervisor is None

    def event_paths(self) -> Iterator[Path]:
        """What changes when the run's event log grows."""
        folder = self._home.run_dir(self._run_id)
        yield folder.event_notification if folder.event_notification.exists() else folder.path

    def wait(self, paths: Iterable[Path], timeout: float | None = None) -> bool:
        """Return when one of the paths may have changed, or after `timeout` seconds. Whether the
        supervisor ended meanwhile.

        If it was killed, the run is recovered, so that it may have another supervisor then.
        """
        if self._watch(paths):
            return False  # a new path may have changed before it was watched
        assert self._supervisor is not None, "a run that has ended does not change"
        due = self._check.due_in()
        limit = due if timeout is None else min(due, timeout)
        ended = bool(wait_for(self._watcher, self._supervisor, timeout=limit))
        self._note_changes()
        if ended:
            self.find_supervisor()
        return ended

    async def wait_async(self, paths: Iterable[Path]) -> bool:
        """As `wait`, in an event loop of asyncio."""
        from muster.service.event_loop import in_thread, wait_for_readable

        if self._watch(paths):
            return False
        assert self._supervisor is not None, "a run that has ended does not change"
        changes, limits = self._watcher.fileno(), [self._check.due_in(), self._watcher.timeout()]
        watched = [self._supervisor] if changes is None else [self._supervisor, changes]
        timeout = min(limit for limit in limits if limit is not None)
        ended = self._supervisor in await wait_for_readable(watched, timeout)
        self._note_changes()
        if ended:
            await in_thread(self.find_supervisor)
        return ended

    def take_notices(self) -> list[Notice]:
        """What was found during the waits since the last call: that the supervisor does not
        answer, that the disk is full."""
        taken, self._notices = self._notices, []
        return taken

    def _note_changes(self) -> None:
        self._watcher.drain()
        self._notices += self._due_notices(self._check)

    def _watch(self, paths: Iterable[Path]) -> bool:
        """Watch these paths, too. Whether one of them is new."""
        # a full disk keeps programs and supervisor from writing, so that nothing else changes
        new = [path for path in (*paths, self._space_mark) if path not in self._watched]
        for path in new:
            self._watched.add(path)
            with suppress(FileNotFoundError):  # deleted meanwhile: it changes no more
                self._watcher.add(path)
        return bool(new)

    def find_supervisor(self) -> None:
        """Recover the run if it has no supervisor, and watch the supervisor that it has then."""
        self._release()
        with suppress(NotFound):
            self._recover()
        self._supervisor = watch_liveness(self._home, self._run_id)

    def _release(self) -> None:
        if self._supervisor is not None:
            os.close(self._supervisor)
        self._supervisor = None

    def close(self) -> None:
        """Stop watching."""
        self._release()
        self._watcher.close()
