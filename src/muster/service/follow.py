"""Follow a run: wait until its files change or its supervisor ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from muster.api.streams import Notice
from muster.control import lease
from muster.control.supervisor_check import SupervisorCheck
from muster.errors import NotFound
from muster.node.file_watch import Watcher, wait_for
from muster.service.context import Context
from muster.service.wait import new_check, notices, recover_or_wait
from muster.storage.home import Home
from muster.storage.liveness import watch_liveness
from muster.unix_account import as_root

if TYPE_CHECKING:
    from asyncio import Event

#: Seconds between looks at the lease of a run that a process on another host drives.
_INTERVAL = 1.0


def follow(context: Context, run_id: str, *, in_loop: bool = False) -> Follower:
    """A follower of a run, to be closed. in_loop: it waits in the running loop of asyncio."""
    return Follower(
        context.home,
        run_id,
        check=new_check(context, run_id),
        space_mark=context.backend.space_mark,
        recover=partial(recover_or_wait, context, run_id),
        is_elsewhere=lambda: bool(lease.other_host(context.store, run_id)),
        notices=partial(notices, context),
        in_loop=in_loop,
    )


class Follower:
    """Waits for changes of a run. The kernel notifies it: it does not poll, unless a process of
    another host drives the run."""

    def __init__(
        self,
        home: Home,
        run_id: str,
        *,
        check: SupervisorCheck,
        space_mark: Path,
        recover: Callable[[], object],
        is_elsewhere: Callable[[], bool],
        notices: Callable[[SupervisorCheck], Iterator[Notice]],
        in_loop: bool = False,
    ) -> None:
        """space_mark: a file that changes when the disk becomes full. recover: recovers the run if
        it has no supervisor; raises NotFound if it was deleted. is_elsewhere: whether a process of
        another host drives the run. notices: those that are due. in_loop: see `follow`."""
        self._home = home
        self._run_id = run_id
        self._check = check
        self._space_mark = space_mark
        self._recover = recover
        self._is_elsewhere = is_elsewhere
        self._due_notices = notices
        self._notices: list[Notice] = []
        self._watched: set[Path] = set()
        self._look_for_supervisor()
        #: Set when the watcher has changes to drain, if it has no descriptor.
        self._changed: Event | None = None
        if self._elsewhere:
            self._watcher = Watcher.polling()
        elif in_loop:
            from muster.service.loop_watcher import loop_watcher

            shared = loop_watcher()
            self._watcher, self._changed = shared, shared.notified
        else:
            self._watcher = Watcher()

    @property
    def ended(self) -> bool:
        """Whether the run has no supervisor any more."""
        return self._supervisor is None and not self._elsewhere

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
        assert not self.ended, "a run that has ended does not change"
        limit = self._limit(timeout)
        watched = [] if self._supervisor is None else [self._supervisor]
        ended = bool(wait_for(self._watcher, *watched, timeout=limit)) or self._has_come_back()
        self._note_changes()
        if ended:
            self.find_supervisor()
        return ended

    async def wait_async(self, paths: Iterable[Path], timeout: float | None = None) -> bool:
        """As `wait`, in an event loop of asyncio."""
        from muster.service.event_loop import in_thread, wait_for_readable

        if self._watch(paths):
            return False
        assert not self.ended, "a run that has ended does not change"
        watched = [one for one in (self._supervisor, self._watcher.fileno()) if one is not None]
        limits = [one for one in (timeout, self._watcher.timeout()) if one is not None]
        limit = self._limit(min(limits, default=None))
        ended = self._supervisor in await wait_for_readable(watched, limit, self._changed)
        if self._elsewhere:
            ended = await in_thread(self._has_come_back)
        self._note_changes()
        if ended:
            await in_thread(self.find_supervisor)
        return ended

    def _limit(self, timeout: float | None) -> float:
        """Seconds to wait for changes; less than `timeout` if there is something to look at."""
        limits = [self._check.due_in(), timeout, _INTERVAL if self._elsewhere else None]
        return min(limit for limit in limits if limit is not None)

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
            # deleted meanwhile: it changes no more. As root, which shows nothing but when a file of
            # the run has changed: some are Muster's own
            with suppress(FileNotFoundError), as_root():
                self._watcher.add(path)
        return bool(new)

    def find_supervisor(self) -> None:
        """Recover the run if it has no supervisor, and watch the supervisor that it has then."""
        self._release()
        with suppress(NotFound):
            self._recover()
        self._look_for_supervisor()

    def _look_for_supervisor(self) -> None:
        self._supervisor = watch_liveness(self._home, self._run_id)
        self._elsewhere = self._supervisor is None and self._is_elsewhere()
        self._look_again_at = time.monotonic() + _INTERVAL

    def _has_come_back(self) -> bool:
        """Whether no process of another host drives the run any more, by a look every second."""
        if not self._elsewhere or time.monotonic() < self._look_again_at:
            return False
        self._look_again_at = time.monotonic() + _INTERVAL
        return not self._is_elsewhere()

    def _release(self) -> None:
        if self._supervisor is not None:
            os.close(self._supervisor)
        self._supervisor = None

    def close(self) -> None:
        """Stop watching."""
        self._release()
        self._watcher.close()
