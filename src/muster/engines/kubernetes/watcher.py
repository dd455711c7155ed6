"""Watches what all runs of a process have in one namespace: a thread and a stream of changes for
each kind of objects, however many runs there are.

A stream may end without a word, begin too late for what has happened before, or be dead and stay
open. Then the objects are listed again, and what differs from what was known is reported, as for
changes that were seen. A dead one is noticed by the bookmarks that it lacks, and by runs that lack
news (`Subscription.doubt`).

A run ends with its JobSet, so that one that is missing is read by its name first: it may have lost
the label by which it is found.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

from muster.engines.kubernetes import streams
from muster.engines.kubernetes.changes import Away, Change, Listed
from muster.engines.kubernetes.cluster import CannotCall, Cluster, Event, VersionExpired, Watch
from muster.engines.kubernetes.known_objects import Facts, KnownObjects
from muster.engines.kubernetes.names import JOBSET_NAME, MANAGER, PART_OF
from muster.engines.kubernetes.observed_facts import OBSERVED, ReadObserved
from muster.engines.kubernetes.outage import Outage
from muster.engines.kubernetes.pod_facts import JobSetFacts, jobset_facts, pod_facts, workload_facts
from muster.engines.kubernetes.versions import Versions
from muster.engines.loop import RunLoop
from muster.engines.remote.pauses import Backoff

#: Seconds until something is tried again, and the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
#: Seconds after which what has worked counts as stable: the pauses begin anew.
_STABLE = 10.0
#: Seconds until a stream that works has said what has just happened: see `Subscription.doubt`.
NEWS_TIMEOUT = 3.0
#: A stream that ends this many seconds early has still ended on schedule.
_EARLY = 1.0
#: Seconds after which JobSet and Kueue are looked for again, if they are not installed.
_INSTALLED_PAUSE = 300.0
_OURS = f"{PART_OF}={MANAGER}"
#: Kueue puts no labels of ours on its objects. The Jobs that a JobSet has made are not followed:
#: the JobSet says how they are.
_SELECTORS = {"Workload": "", "Job": f"{_OURS},!{JOBSET_NAME}"}


#: Gets the changes of a run.
Seen = Callable[[Sequence[Change]], object]


class ReadFacts(Protocol):
    """Reads what is of interest of an object of a kind. is_deleted: it is not there any more."""

    def __call__(
        self, kind: str, item: Mapping[str, Any], *, is_deleted: bool = False
    ) -> Facts: ...


class Subscription:
    """Changes of one run."""

    def __init__(self, watcher: Watcher, run: str, loop: RunLoop, seen: Seen) -> None:
        self.run, self._watcher, self._loop, self._seen = run, watcher, loop, seen
        self._closed = False

    def post(self, changes: Sequence[Change]) -> None:
        """Report changes, in the thread of the run's loop."""
        if changes:
            self._loop.post(lambda: self._report(changes))

    def fail(self, error: Exception) -> None:
        """Raise a bug where it ends the run."""
        self._loop.post(lambda: _raise(error))

    def _report(self, changes: Sequence[Change]) -> None:
        if not self._closed:
            self._seen(changes)

    def doubt(self, since: float) -> None:
        """The run lacks news of its pods: list all objects whose streams have said nothing since
        then (monotonic seconds), as these may be dead. Returns at once."""
        self._watcher.doubt(since)

    def close(self) -> None:
        """Report nothing more. In the thread of the run's loop."""
        if not self._closed:
            self._closed = True
            self._watcher.unsubscribe(self)


class _Threads:
    """The threads of a watcher, from the first subscription until the last one is closed."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.streams: dict[str, Watch] = {}  # by kind
        self.opened: dict[str, float] = {}  # when the last of these were, by kind
        #: By kind, when the stream has said something last, or the list before it was requested.
        self.heard: dict[str, float] = {}
        self.kinds: set[str] = set()  # those that are followed
        #: Set when a run is subscribed, and at the end.
        self.subscribed = threading.Event()


class Watcher:
    """The watcher of a cluster's namespace. May be used by several threads.

    selectors: by kind, which objects; others are those of Muster. facts: reads them.
    """

    def __init__(
        self,
        cluster: Cluster,
        selectors: Mapping[str, str] = _SELECTORS,
        facts: ReadFacts | None = None,
    ) -> None:
        self._cluster, self._selectors, self._facts = cluster, selectors, facts or _facts
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._threads = _Threads()
        self._warned: set[str] = set()  # kinds of which an object was not read
        self._clear()

    def _clear(self) -> None:
        self._known, self._outage = KnownObjects(), Outage()

    def subscribe(
        self, run: str, loop: RunLoop, seen: Seen, *, has_jobs: bool = False
    ) -> Subscription:
        """Report the changes of a run from now on, and before that what it has. In the thread of
        its loop. has_jobs: whether it has Jobs without JobSet, which may be installed by now."""
        made = Subscription(self, run, loop, seen)
        with self._lock:
            is_first = not self._subscriptions
            self._subscriptions.append(made)
            if is_first:
                self._clear()
                self._threads = _Threads()
                self._start_following(self._threads, "Pod")
                self._start(self._threads, self._follow_jobs)
            else:
                self._threads.subscribed.set()
            if has_jobs:
                self._start_following(self._threads, "Job")
            away = self._outage.reported
            made.post([*self._known.of(run), *([] if away is None else [away])])
        return made

    def unsubscribe(self, one: Subscription) -> None:
        """See `Subscription.close`. Without any, nothing is watched. Returns at once."""
        with self._lock:
            self._subscriptions.remove(one)
            if self._subscriptions:
                return
            threads = self._threads
            threads.stopped.set()
            threads.subscribed.set()
            streams = [*threads.streams.values()]
            self._clear()
        for stream in streams:
            stream.close()
        self._cluster.close()

    def doubt(self, since: float) -> None:
        """See `Subscription.doubt`."""
        with self._lock:
            heard = self._threads.heard
            silent = [s for kind, s in self._threads.streams.items() if heard[kind] < since]
        for stream in silent:
            stream.close()  # the thread that reads it lists the objects

    # --- threads

    def _start(self, threads: _Threads, work: Callable[[_Threads], None]) -> None:
        def run() -> None:
            try:
                work(threads)
            except Exception as error:  # noqa: BLE001  raised where it ends the runs
                self._raise_in_runs(threads, error)

        threading.Thread(target=run, daemon=True, name="kubernetes").start()

    def _raise_in_runs(self, threads: _Threads, error: Exception) -> None:
        with self._lock:
            if not threads.stopped.is_set():
                for one in self._subscriptions:
                    one.fail(error)

    def _start_following(self, threads: _Threads, kind: str) -> None:
        """Have a kind followed, unless it is. With the lock."""
        if kind not in threads.kinds:
            threads.kinds.add(kind)
            self._start(threads, lambda own: self._follow(own, kind))

    def _follow_jobs(self, threads: _Threads) -> None:
        """Have those followed that own pods, and what Kueue says of them, if they are installed."""
        versions = self._find_versions(threads)
        if versions is None:
            return
        known = {"JobSet": versions.jobset, "Workload": versions.kueue}
        missing = [kind for kind, version in known.items() if version is None]
        with self._lock:
            if versions.jobset is None:
                self._start_following(threads, "Job")
            for kind in known.keys() - set(missing):
                self._start_following(threads, kind)
        self._await_kinds(threads, missing)

    def _find_versions(self, threads: _Threads) -> Versions | None:
        """None if it is stopped first."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while not threads.stopped.is_set():
            began = time.time()
            try:
                versions = self._cluster.versions()
            except CannotCall as error:
                self._has_failed(threads, "JobSet", error, began)
                threads.stopped.wait(_spread(backoff.next()))
            else:
                self._works(threads, "JobSet")
                return versions
        return None

    def _await_kinds(self, threads: _Threads, missing: Sequence[str]) -> None:
        """Have those kinds followed that are installed later: runs that begin then use them."""
        while missing:
            threads.subscribed.wait(_INSTALLED_PAUSE)
            threads.subscribed.clear()
            if threads.stopped.is_set():
                return
            with suppress(CannotCall):
                found = [kind for kind in missing if self._cluster.serves(kind)]
                with self._lock:
                    for kind in found:
                        self._start_following(threads, kind)
                missing = [kind for kind in missing if kind not in found]

    def _follow(self, threads: _Threads, kind: str) -> None:
        """Until it is stopped."""
        version, backoff = "", Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while not threads.stopped.is_set():
            least, began = 0.0, time.time()
            try:
                if not version:
                    version = self._list(threads, kind)
                    self._works(threads, kind)
                version = self._read(threads, kind, version)
            except VersionExpired:
                version = ""
            except CannotCall as error:
                version = ""
                least = _LONGEST_PAUSE if error.lasts else error.retry_after or 0.0
                since = time.time() if kind in threads.opened else began
                self._has_failed(threads, kind, error, since)
            if version:
                continue  # the stream has ended as it should
            with self._lock:  # a run that is subscribed now has to wait until it is listed again
                if not threads.stopped.is_set():
                    self._known.forget_list(kind)
            opened = threads.opened.pop(kind, None)
            if opened is not None and time.monotonic() - opened >= _STABLE:
                backoff.reset()
            threads.stopped.wait(_spread(max(backoff.next(), least)))

    def _list(self, threads: _Threads, kind: str) -> str:
        """Report how what is there differs from what is known. Returns its version."""
        found, version = dict[str, Facts](), ""
        unread = set[str]()  # uids of objects that stay as they are known
        selector = self._selectors.get(kind, _OURS)
        began = time.monotonic()
        for page in self._cluster.pages(kind, selector, excerpts=True, retry_for=0.0):
            for item in page.items:
                facts = self._read_facts(kind, item)
                if facts is None:
                    unread.add(_uid(item))
                else:
                    found[facts.uid] = facts
            version = page.version
        if not version:  # that of something in between: each list has one
            text = f"the cluster's answer cannot be read: it is no list of {kind} objects"
            raise CannotCall(text, refused=False)
        with self._lock:
            missing = self._known.missing(kind, {*found, *unread})
        unlisted = {one.uid for one in missing if self._is_there(kind, one)}
        with self._lock:
            if threads.stopped.is_set():
                return ""
            threads.heard[kind] = began
            changes = self._known.replace(kind, found.values(), missing, unlisted)
            for one in self._subscriptions:
                one.post([*changes.of(one.run), Listed(kind)])
        return version

    def _read(self, threads: _Threads, kind: str, version: str) -> str:
        """Report changes until the stream ends. Returns the version from which to read on; "" if
        some may have been missed."""
        began = time.monotonic()
        stream = self._cluster.watch(kind, self._selectors.get(kind, _OURS), version)
        with self._lock:
            if threads.stopped.is_set():
                stream.close()
                return ""
            threads.streams[kind] = stream
        threads.opened[kind] = time.monotonic()  # connecting may have taken long
        try:
            for event in stream:
                version = event.version or version
                threads.heard[kind] = time.monotonic()
                self._take(threads, kind, event)
        finally:
            stream.close()
            with self._lock:
                threads.streams.pop(kind, None)
        in_time = time.monotonic() - began >= streams.STREAM_SECONDS - _EARLY
        with self._lock:  # those that are not listed are read again when the others are listed
            return version if in_time and not self._known.has_unlisted(kind) else ""

    def _take(self, threads: _Threads, kind: str, event: Event) -> None:
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            return  # a bookmark
        is_deleted = event.type == "DELETED"
        facts = self._read_facts(kind, event.item, is_deleted=is_deleted)
        with self._lock:
            if facts is None and is_deleted:
                facts = self._known.get(kind, _uid(event.item))
        if facts is None:
            return
        is_unlisted = is_deleted and self._is_there(kind, facts)
        with self._lock:
            if threads.stopped.is_set():
                return
            if is_unlisted:
                self._known.add_unlisted(kind, facts)
                return
            changes = (self._known.remove if is_deleted else self._known.put)(kind, facts)
            for one in self._subscriptions:
                one.post(changes.of(one.run))

    def _is_there(self, kind: str, facts: Facts) -> bool:
        """Whether a JobSet is in the cluster that seems not to be. Raises CannotCall. One that was
        being deleted is not read again, nor are other objects: no run ends with one alone."""
        if not isinstance(facts, JobSetFacts) or facts.is_ending:
            return False
        name = f"metadata.name={facts.name}"
        pages = self._cluster.pages(kind, name, excerpts=True, retry_for=0.0)
        return any(_uid(item) == facts.uid for page in pages for item in page.items)

    def _read_facts(
        self, kind: str, item: Mapping[str, Any], *, is_deleted: bool = False
    ) -> Facts | None:
        """What an object says; None if it has a shape that is not known. One that nobody has
        foreseen, in any field of any object of a namespace, would end all runs there."""
        try:
            return self._facts(kind, item, is_deleted=is_deleted)
        except Exception as error:  # noqa: BLE001  whatever the shape leads to
            if kind not in self._warned:  # with many objects, there would be many warnings
                self._warned.add(kind)
                text = f"{kind} {_name(item)} of the cluster is ignored: it cannot be read"
                sys.stderr.write(f"muster: {text}: {error!r:.200}\n")
            return None

    # --- whether the cluster answers

    def _has_failed(self, threads: _Threads, kind: str, error: CannotCall, since: float) -> None:
        """See `Outage.failed`."""
        now = time.time()
        with self._lock:
            if not threads.stopped.is_set():
                self._report_away(self._outage.failed(kind, error, since, now))

    def _works(self, threads: _Threads, kind: str) -> None:
        """See `Outage.works`."""
        with self._lock:
            if not threads.stopped.is_set():
                self._report_away(self._outage.works(kind))

    def _report_away(self, away: Away | None) -> None:
        if away is not None:
            for one in self._subscriptions:
                one.post([away])


def _facts(kind: str, item: Mapping[str, Any], *, is_deleted: bool = False) -> Facts:
    if kind == "Pod":
        return pod_facts(item, is_deleted=is_deleted)
    return workload_facts(item) if kind == "Workload" else jobset_facts(item, kind)


def _uid(item: Mapping[str, Any]) -> str:
    """Of an object that may have any shape; "" if that is not known."""
    return _field(item, "uid")


def _name(item: Mapping[str, Any]) -> str:
    return _field(item, "name") or "without a name"


def _field(item: Mapping[str, Any], name: str) -> str:
    about = item.get("metadata") if isinstance(item, Mapping) else None
    found = about.get(name) if isinstance(about, Mapping) else None
    return found if isinstance(found, str) else ""


def _spread(pause: float) -> float:
    """Not all call at the same time."""
    return pause * random.uniform(1.0, 1.5)


def _raise(error: Exception) -> None:
    raise error


class ObservedWatcher(Watcher):
    """The watcher of the JobSets in a namespace that are not of Muster's own making. A
    subscription's run is the name of a JobSet."""

    def __init__(self, cluster: Cluster) -> None:
        #: Reads what is watched.
        self.reading = ReadObserved()
        super().__init__(cluster, OBSERVED, self.reading)


#: Those that runs have, by what says which namespace of which cluster it is.
_watchers: WeakValueDictionary[Hashable, Watcher] = WeakValueDictionary()
_making = threading.Lock()


def watcher_of(cluster: Cluster) -> Watcher:
    """The watcher of a namespace in this process."""
    return _watcher_of(cluster, Watcher)


def observed_watcher_of(cluster: Cluster) -> ObservedWatcher:
    """The same for JobSets of the user's."""
    found = _watcher_of(cluster, ObservedWatcher)
    assert isinstance(found, ObservedWatcher)
    return found


def _watcher_of(cluster: Cluster, kind: type[Watcher | ObservedWatcher]) -> Watcher:
    key = cluster.connection.key, kind.__name__
    with _making:
        if (found := _watchers.get(key)) is None:
            found = _watchers[key] = kind(cluster)
        return found
