"""Asks Slurm about jobs: one `squeue` at a time for all runs of a process.

A job is looked at while it is of interest: it waits, or contact with one of its nodes is lost. The
longer nothing has changed, the longer the pause until the next look.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from muster.engines.loop import EventLoop, RunLoop
from muster.engines.slurm.client import CannotRun, Job, jobs_with_ids

#: Seconds until the first look at a job, and the longest pause between two.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
#: Why jobs wait that only others are before.
_IN_LINE = ("Priority", "Resources")
#: Gets the components that Slurm knows of a job; or why it has not answered.
Seen = Callable[[Sequence[Job] | CannotRun], object]


class _Watch(Struct, eq=False):
    job: int
    key: str
    name: str | None
    loop: RunLoop
    seen: Seen
    pause: float
    due: float
    #: What Slurm reported last, except for what changes with every look; None: nothing.
    last: Sequence[tuple[object, ...]] | None = None
    #: Whether it waits for its turn, so that its place in the queue is of interest.
    in_line: bool = False


class Watcher:
    """The watcher of a process. environ: of the commands."""

    def __init__(self, loop: EventLoop, environ: Mapping[str, str]) -> None:
        self._loop, self._environ = loop, environ
        self._watches: dict[tuple[str, int], _Watch] = {}  # by job and owner
        self._asking = False
        self._participant = loop.add(self._step, self._failed)

    def watch(self, owner: object, job: str, name: str | None, loop: RunLoop, seen: Seen) -> None:
        """Look at a job until `forget`. job: see `Job.key`. name: a job with another one is not it;
        None: any name. seen: called in the loop's thread after each look."""
        key = (job, id(owner))
        due = self._loop.now() + _FIRST_PAUSE
        if key not in self._watches:
            number = int(job.partition("_")[0])
            self._watches[key] = _Watch(number, job, name, loop, seen, _FIRST_PAUSE, due)
        self._participant.notify()

    def look_soon(self, owner: object, job: str) -> None:
        """Something has happened to a job that is watched."""
        if (watch := self._watches.get((job, id(owner)))) is not None:
            watch.pause, watch.due = _FIRST_PAUSE, self._loop.now()
            self._participant.notify()

    def forget(self, owner: object, job: str) -> None:
        """A job is of no interest any more; nothing if it is not watched."""
        self._watches.pop((job, id(owner)), None)

    def _step(self, _ready: Mapping[int, int]) -> None:
        now = self._loop.now()
        due = [one for one in self._watches.values() if one.due <= now]
        if due and not self._asking:
            self._asking = True
            # those that are due soon are asked for at the same time
            asked = [one for one in self._watches.values() if one.due <= now + one.pause / 2]
            threading.Thread(target=self._ask, args=(asked,), daemon=True).start()
        if not self._asking:
            self._participant.wake_at(min((w.due for w in self._watches.values()), default=None))

    def _ask(self, watches: Sequence[_Watch]) -> None:
        """In a thread."""
        answer: Sequence[Job] | CannotRun
        try:
            queue = any(one.in_line for one in watches)
            answer = jobs_with_ids({one.job for one in watches}, self._environ, queue=queue)
        except CannotRun as error:
            answer = error
        except Exception as error:  # noqa: BLE001  raised where it ends the runs
            bug = error
            self._loop.post(lambda: self._failed(bug))
            return
        self._loop.post(lambda: self._take(watches, answer), self._failed)

    def _failed(self, error: Exception) -> None:
        """A bug: it reaches whoever drives the runs that are watched, and ends no other."""
        self._asking = False
        watches = [*self._watches.values()]
        self._watches.clear()
        for watch in watches:
            watch.loop.post(partial(_raise, error))

    def _take(self, watches: Sequence[_Watch], answer: Sequence[Job] | CannotRun) -> None:
        self._asking = False
        for watch in watches:
            own: Sequence[Job] | CannotRun = answer
            changed = False
            if not isinstance(answer, CannotRun):
                own = [
                    job for job in answer if job.key == watch.key and watch.name in (None, job.name)
                ]
                facts = [(job.id, job.state, job.nodes, job.reason) for job in own]
                changed, watch.last = facts != watch.last, facts
                watch.in_line = any(job.waits and job.reason in _IN_LINE for job in own)
            watch.pause = _FIRST_PAUSE if changed else min(2 * watch.pause, _LONGEST_PAUSE)
            watch.due = self._loop.now() + watch.pause * random.uniform(0.75, 1.25)
            if watch in self._watches.values():
                self._pass_on(watch, own)
        self._participant.notify()

    def _pass_on(self, watch: _Watch, answer: Sequence[Job] | CannotRun) -> None:
        watch.loop.post(lambda: _call(watch.seen, answer))


def _raise(error: Exception) -> None:
    raise error


def _call(seen: Seen, answer: Sequence[Job] | CannotRun) -> None:
    seen(answer)


#: Those of each loop.
_watchers: dict[EventLoop, Watcher] = {}


def watcher_of(loop: RunLoop, environ: Mapping[str, str]) -> Watcher:
    """The watcher of a process. environ: of its first run, whose cluster all use."""
    process_loop = loop.process_loop
    if process_loop not in _watchers:
        _watchers[process_loop] = Watcher(process_loop, environ)
    return _watchers[process_loop]
