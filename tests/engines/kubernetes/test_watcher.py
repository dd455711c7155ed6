"""What the watcher reports to runs, whatever becomes of its streams."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from engines.kubernetes.api_stub import Answer, ApiStub, Request, event, write_config
from muster.engines.kubernetes import answers, outage, sessions, streams
from muster.engines.kubernetes import watcher as module
from muster.engines.kubernetes.changes import Away, Change, JobSetChanged, Listed, PodChanged
from muster.engines.kubernetes.cluster import CannotCall, Cluster, Event, Listing, VersionExpired
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Versions
from muster.engines.kubernetes.watcher import Watcher, observed_watcher_of, watcher_of
from muster.engines.loop import EventLoop, RunLoop
from muster.lifecycle.status import Reason
from support.faults import until
from support.kube.objects import Selector

TIMEOUT = 20.0
C = TypeVar("C", PodChanged, JobSetChanged, Listed, Away)


class Stream:
    """A stream of changes that a test fills."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event | Exception | None] = queue.Queue()
        self.is_closed = threading.Event()

    def send(self, *events: Event | Exception | None) -> None:
        """None ends it."""
        for one in events:
            self._events.put(one)

    def close(self) -> None:
        self.is_closed.set()
        self._events.put(None)

    def __iter__(self) -> Iterator[Event]:
        while (one := self._events.get()) is not None:
            if isinstance(one, Exception):
                raise one
            yield one


class FakeCluster:
    """Objects by kind, and the streams that were opened."""

    connection = SimpleNamespace(key="the test's")

    def __init__(self, versions: Versions) -> None:
        self.profile = KubernetesProfile(namespace="team")
        self._versions = versions
        self.objects: dict[str, list[dict[str, Any]]] = {}
        #: By kind, those that are not found by their labels.
        self.unlisted: dict[str, list[dict[str, Any]]] = {}
        self.installed: set[str] = set()
        self.version = "5"
        self.streams: dict[str, queue.Queue[Stream]] = {
            kind: queue.Queue() for kind in ("Pod", "JobSet", "Job", "Workload")
        }
        self.calls: list[str] = []
        self.error: CannotCall | None = None
        self.delay = 0.0  # of an error, in seconds
        self.is_closed = threading.Event()

    def close(self) -> None:
        self.is_closed.set()

    def versions(self) -> Versions:
        self._fail()
        return self._versions

    def _fail(self) -> None:
        error = self.error  # it may be taken back meanwhile
        if error is not None:
            time.sleep(self.delay)
            raise error

    def serves(self, kind: str) -> bool:
        self.calls.append(f"serves {kind}")
        return kind in self.installed

    def pages(
        self, kind: str, selector: str, *, excerpts: bool, retry_for: float
    ) -> Iterator[Listing]:
        self.calls.append(f"list {kind} {selector}")
        self._fail()
        items = self.objects.get(kind, [])
        if selector.startswith("metadata.name="):
            name = selector.partition("=")[2]
            every = [*items, *self.unlisted.get(kind, [])]
            items = [one for one in every if one["metadata"]["name"] == name]
        elif kind == "Job":
            wanted = Selector(selector)
            items = [one for one in items if wanted.matches(one["metadata"]["labels"])]
        for item in items:  # a page each
            yield Listing([item], self.version)
        yield Listing([], self.version)

    def watch(self, kind: str, selector: str, version: str) -> Stream:
        self.calls.append(f"watch {kind} {version}")
        self._fail()
        stream = Stream()
        self.streams[kind].put(stream)
        return stream

    def stream(self, kind: str) -> Stream:
        """The next stream that was opened."""
        return self.streams[kind].get(timeout=TIMEOUT)


class Runs:
    """Subscriptions, with the loop that they are called in."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.loop = EventLoop()
        self.failures: list[Exception] = []
        #: By run, those that were not waited for yet, and all.
        self.changes: dict[str, list[Change]] = {}
        self.seen: dict[str, list[Change]] = {}

    def subscribe(self, run: str, *, has_jobs: bool = False) -> module.Subscription:
        own, every = self.changes.setdefault(run, []), self.seen.setdefault(run, [])
        loop = RunLoop(self.loop, self.failures.append)

        def seen(changes: Sequence[Change]) -> None:
            own.extend(changes)
            every.extend(changes)

        return self.watcher.subscribe(run, loop, seen, has_jobs=has_jobs)

    def wait(self, run: str, kind: type[C], what: Callable[[C], object] = bool) -> C:
        """The next change of a kind that is so; those before it are forgotten."""
        while True:
            self.run_until(lambda: self.changes[run])
            one = self.changes[run].pop(0)
            if isinstance(one, kind) and what(one):
                return one

    def wait_for_list(self, run: str, kind: str) -> None:
        """Wait until all objects of a kind were reported."""
        self.wait(run, Listed, lambda one: one.kind == kind)

    def run_until(self, what: Callable[[], object]) -> None:
        """Run the loop until something is so."""
        late = self.loop.add(lambda _: pytest.fail("nothing has happened"))
        late.wake_at(self.loop.now() + TIMEOUT)
        while not what():
            self.loop.run_once()
        late.close()


def pod(name: str, run: str = "r1", **status: Any) -> dict[str, Any]:
    labels = {"muster.run/id": run, "jobset.sigs.k8s.io/jobset-name": "train"}
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "labels": labels, "resourceVersion": "6"},
        "spec": {"nodeName": "gpu-7"},
        "status": {"phase": "Running", **status},
    }


#: The label of all objects that Muster applies.
OURS = {"app.kubernetes.io/managed-by": "muster"}

#: A condition of a JobSet, or of a Job.
FAILED = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "no."}


def jobset(run: str = "r1", uid: str = "uid-js", **status: Any) -> dict[str, Any]:
    about = {"uid": uid, "name": "train", "labels": {**OURS, "muster.run/id": run}}
    return {"metadata": about, "spec": {"suspend": True}, "status": status}


def workload(message: str) -> dict[str, Any]:
    one = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
    about = {"uid": "w", "name": "w", "ownerReferences": [{"uid": "uid-js", "controller": True}]}
    return {"metadata": about, "spec": {"queueName": "a"}, "status": {"conditions": [one]}}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(outage, "_AWAY_AFTER", 0.0)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(Versions())


@pytest.fixture
def runs(cluster: FakeCluster) -> Iterator[Runs]:
    made = Runs(Watcher(cast(Cluster, cluster)))
    yield made
    for one in [*made.watcher._subscriptions]:
        one.close()
    assert made.failures == []
    made.loop.close()


def test_a_run_learns_of_its_pods_alone(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["Pod"] = [pod("a"), pod("b", "r2")]
    runs.subscribe("r1")
    assert runs.wait("r1", PodChanged).pod.name == "a"
    runs.wait_for_list("r1", "Pod")
    stream = cluster.stream("Pod")
    stream.send(Event("MODIFIED", pod("b", "r2", phase="Failed")))
    stream.send(Event("MODIFIED", pod("a", phase="Failed", reason="Evicted")))
    one = runs.wait("r1", PodChanged)
    assert one.pod.end is not None
    assert (one.pod.name, one.pod.end.reason) == ("a", Reason.NODE_LOST)


def test_all_runs_have_one_stream(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["Pod"] = [pod("a"), pod("b", "r2")]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    runs.subscribe("r2")
    assert runs.wait("r2", PodChanged).pod.name == "b"
    runs.wait_for_list("r2", "Pod")
    ours = "app.kubernetes.io/managed-by=muster"
    assert cluster.calls.count(f"list Pod {ours}") == 1


def test_what_changes_nothing_is_not_reported(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["Pod"] = [pod("a")]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    same = pod("a")
    same["metadata"]["resourceVersion"] = "9"
    cluster.stream("Pod").send(Event("MODIFIED", same), Event("ADDED", pod("c")))
    assert runs.wait("r1", PodChanged).pod.name == "c"


@pytest.mark.parametrize("end", [None, VersionExpired()], ids=["silent", "410"])
def test_what_was_missed_is_found(cluster: FakeCluster, runs: Runs, end: Exception | None) -> None:
    cluster.objects["Pod"] = [pod("a"), pod("b")]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    # given a was deleted, and c made, while the stream was cut off
    cluster.objects["Pod"] = [pod("b"), pod("c")]
    cluster.stream("Pod").send(end)
    gone = runs.wait("r1", PodChanged)
    assert (gone.pod.name, gone.is_gone) == ("a", True)
    assert gone.pod.end == (Reason.NODE_LOST, "pod a was deleted")
    assert runs.wait("r1", PodChanged).pod.name == "c"


def test_why_a_missed_pod_was_evicted_is_remembered(cluster: FakeCluster, runs: Runs) -> None:
    one = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    cluster.objects["Pod"] = [pod("a", conditions=[one])]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    cluster.objects["Pod"] = []
    cluster.stream("Pod").send(None)
    gone = runs.wait("r1", PodChanged).pod
    assert gone is not None
    assert gone.end is not None
    assert gone.end.reason is Reason.PREEMPTED


def test_a_stream_that_ends_in_time_goes_on(
    cluster: FakeCluster, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 0)
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    bookmark = Event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})
    cluster.stream("Pod").send(bookmark, None)
    cluster.stream("Pod").send(Event("ADDED", pod("a")))
    assert runs.wait("r1", PodChanged).pod.name == "a"
    assert "watch Pod 12" in cluster.calls
    assert len([one for one in cluster.calls if one.startswith("list Pod")]) == 1


def test_a_stream_that_lacks_news_is_doubted(cluster: FakeCluster, runs: Runs) -> None:
    subscription = runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    stream, jobsets = cluster.stream("Pod"), cluster.stream("JobSet")
    # given it has said something since
    since = time.monotonic()
    stream.send(Event("BOOKMARK", {"metadata": {"resourceVersion": "7"}}))
    stream.send(Event("ADDED", pod("a")))
    runs.wait("r1", PodChanged)
    jobsets.send(Event("ADDED", jobset()))  # now, as changes before the one that is waited for go
    runs.wait("r1", JobSetChanged)
    subscription.doubt(since)
    assert not stream.is_closed.is_set()
    # given it has said nothing since, and a has ended
    cluster.objects["Pod"] = [pod("a", phase="Failed", reason="Evicted")]
    subscription.doubt(time.monotonic())
    one = runs.wait("r1", PodChanged)
    assert one.pod.end is not None
    assert stream.is_closed.is_set()
    # and the list counts as news
    other = cluster.stream("Pod")
    subscription.doubt(since)
    assert not other.is_closed.is_set()


@pytest.mark.parametrize("odd", [{"status": [1]}, {"metadata": {"uid": "uid-a", "labels": 5}}])
def test_an_object_that_cannot_be_read_is_left_out(
    cluster: FakeCluster, runs: Runs, odd: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.objects["Pod"] = [pod("a"), pod("b")]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    stream = cluster.stream("Pod")
    shown = {**pod("a"), **odd}
    stream.send(Event("MODIFIED", shown), Event("ADDED", pod("c")))
    assert runs.wait("r1", PodChanged).pod.name == "c"
    # a list has it as well: what is known of it stays
    cluster.objects["Pod"] = [shown, pod("b"), pod("c"), pod("d")]
    stream.send(None)
    assert runs.wait("r1", PodChanged).pod.name == "d"
    # its end is known
    stream = cluster.stream("Pod")
    stream.send(Event("DELETED", shown))
    one = runs.wait("r1", PodChanged)
    assert (one.pod.name, one.is_gone) == ("a", True)
    said = capsys.readouterr().err
    assert said.count("of the cluster is ignored: it cannot be read: ") == 1
    assert said.startswith(f"muster: Pod {'a' if 'status' in odd else 'without a name'} ")


def test_a_cluster_that_is_away_is_reported(cluster: FakeCluster, runs: Runs) -> None:
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Pod")
    stream = cluster.stream("Pod")
    cluster.error = CannotCall("the cluster does not answer: refused", refused=False)
    stream.send(None)
    away = runs.wait("r1", Away)
    assert (away.why, away.is_back) == ("the cluster does not answer: refused", False)
    runs.subscribe("r2")  # who comes later learns of it, too
    assert runs.wait("r2", Away) == away
    cluster.error = None
    back = runs.wait("r1", Away, lambda one: one.is_back)
    assert back.since == away.since


def test_kueue_says_why_a_jobset_waits(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["JobSet"] = [jobset()]
    cluster.objects["Workload"] = [workload("no quota")]
    runs.subscribe("r1")
    one = runs.wait("r1", JobSetChanged, lambda one: one.jobset.why_waiting).jobset
    assert one.why_waiting == "queue a of Kueue has not admitted it yet: no quota"
    cluster.stream("Workload").send(Event("MODIFIED", workload("8 more needed")))
    one = runs.wait("r1", JobSetChanged).jobset
    assert one.why_waiting == "queue a of Kueue has not admitted it yet: 8 more needed"
    cluster.stream("JobSet").send(Event("MODIFIED", jobset(conditions=[FAILED])))
    one = runs.wait("r1", JobSetChanged).jobset
    assert one.failed == "JobSet train has failed: no (FailedJobs)"


def test_a_call_that_takes_long_to_fail_is_reported_at_once(
    cluster: FakeCluster, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the next one has failed, too."""
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE"):
        monkeypatch.setattr(module, name, 1000.0)
    monkeypatch.setattr(outage, "_AWAY_AFTER", 0.2)
    cluster.error, cluster.delay = CannotCall("a plug-in hangs", refused=False), 0.3
    runs.subscribe("r1")
    away = runs.wait("r1", Away)
    assert away.why == "a plug-in hangs"
    assert len(cluster.calls) == 1


def test_a_slow_connect_is_no_success(
    cluster: FakeCluster, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(module, "_spread", lambda pause: pauses.append(pause) or 0.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 10.0)
    clock = iter(range(0, 10**9, 20))  # each call takes longer than what is stable

    class Time:
        time = staticmethod(module.time.time)

        @staticmethod
        def monotonic() -> float:
            return float(next(clock))

    monkeypatch.setattr(module, "time", Time)
    cluster.error = CannotCall("it takes too long", refused=False)
    subscription = runs.subscribe("r1")
    until(lambda: len(pauses) > 12, "it has tried a dozen times", TIMEOUT)  # no event says so
    subscription.close()
    assert max(pauses) > 8 * min(pauses)


def test_jobs_are_watched_without_jobset(cluster: FakeCluster, runs: Runs) -> None:
    cluster._versions = Versions(jobset=None, kueue=None)
    cluster.objects["Job"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Job")
    assert not [one for one in cluster.calls if "JobSet" in one or "Workload" in one]


def test_jobs_that_a_jobset_has_made_are_not_taken_for_those_of_the_run(
    cluster: FakeCluster, runs: Runs
) -> None:
    made = jobset(uid="uid-made", conditions=[FAILED])
    made["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "train"
    cluster.objects["JobSet"] = [jobset()]
    cluster.objects["Job"] = [made, jobset(uid="uid-job")]
    runs.subscribe("r1", has_jobs=True)
    runs.run_until(
        lambda: (
            {"JobSet", "Job"} <= {one.kind for one in runs.changes["r1"] if isinstance(one, Listed)}
        )
    )
    seen = {one.jobset.uid for one in runs.changes["r1"] if isinstance(one, JobSetChanged)}
    assert seen == {"uid-js", "uid-job"}


def test_what_is_installed_later_is_watched_for_the_next_run(
    cluster: FakeCluster, runs: Runs
) -> None:
    """It has a JobSet, and those before it have their Jobs."""
    cluster._versions = Versions(jobset=None, kueue=None)
    cluster.objects["Job"] = [jobset(uid="uid-job")]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "Job")
    cluster.objects["JobSet"] = [jobset("r2")]
    cluster.objects["Workload"] = [workload("no quota")]
    cluster.installed = {"JobSet", "Workload"}
    runs.subscribe("r2")
    assert runs.wait("r2", JobSetChanged, lambda one: one.jobset.why_waiting)
    cluster.stream("Job").send(Event("MODIFIED", jobset(uid="uid-job", conditions=[FAILED])))
    assert runs.wait("r1", JobSetChanged, lambda one: one.jobset.failed)


def test_what_is_installed_is_asked_now_and_then(
    cluster: FakeCluster, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_INSTALLED_PAUSE", 0.01)
    cluster._versions = Versions(kueue=None)
    cluster.objects["JobSet"] = [jobset()]
    cluster.objects["Workload"] = [workload("no quota")]
    runs.subscribe("r1")
    until(lambda: cluster.calls.count("serves Workload") > 2, "it is called again", TIMEOUT)
    cluster.installed = {"Workload"}
    assert runs.wait("r1", JobSetChanged, lambda one: one.jobset.why_waiting)
    assert "serves JobSet" not in cluster.calls
    count = cluster.calls.count("serves Workload")
    runs.subscribe("r2")
    runs.wait_for_list("r2", "JobSet")
    assert cluster.calls.count("serves Workload") == count


# --- JobSets that seem to be gone


def is_gone(change: Change) -> bool:
    return isinstance(change, JobSetChanged) and change.is_gone


@pytest.mark.parametrize("how", ["event", "list"])
def test_a_jobset_that_has_lost_its_label_is_there(
    cluster: FakeCluster, runs: Runs, how: str
) -> None:
    cluster.objects["JobSet"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "JobSet")
    cluster.unlisted["JobSet"] = cluster.objects.pop("JobSet")
    stream = cluster.stream("JobSet")
    stream.send(Event("DELETED", jobset()) if how == "event" else None)
    until(
        lambda: "list JobSet metadata.name=train" in cluster.calls,
        "it is read by its name",
        TIMEOUT,
    )
    if how == "event":
        stream.send(None)
    runs.wait_for_list("r1", "JobSet")
    assert not any(is_gone(one) for one in runs.seen["r1"])
    cluster.unlisted.clear()
    cluster.stream("JobSet").send(None)
    assert runs.wait("r1", JobSetChanged, is_gone)


@pytest.mark.parametrize("other", [[], [jobset(uid="another")]], ids=["none", "another"])
@pytest.mark.parametrize("how", ["event", "list"])
def test_a_jobset_that_is_not_found_is_gone(
    cluster: FakeCluster, runs: Runs, how: str, other: list[dict[str, Any]]
) -> None:
    cluster.objects["JobSet"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "JobSet")
    cluster.objects["JobSet"], cluster.unlisted["JobSet"] = [], other
    cluster.stream("JobSet").send(Event("DELETED", jobset()) if how == "event" else None)
    assert runs.wait("r1", JobSetChanged, is_gone)


def test_a_cluster_that_does_not_say_where_a_jobset_is_has_it(
    cluster: FakeCluster, runs: Runs
) -> None:
    cluster.objects["JobSet"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "JobSet")
    stream = cluster.stream("JobSet")
    cluster.error = CannotCall("may not list jobsets", refused=True, status=403)
    stream.send(Event("DELETED", jobset()))
    runs.wait("r1", Away)
    assert not any(is_gone(one) for one in runs.seen["r1"])
    cluster.objects.clear()
    cluster.error = None
    assert runs.wait("r1", JobSetChanged, is_gone)


def test_what_is_being_deleted_is_not_asked_about(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["JobSet"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "JobSet")
    deleted = jobset()
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.stream("JobSet").send(Event("DELETED", deleted))
    assert runs.wait("r1", JobSetChanged, is_gone)
    assert "list JobSet metadata.name=train" not in cluster.calls


def test_an_answer_that_is_no_list_says_nothing(cluster: FakeCluster, runs: Runs) -> None:
    cluster.objects["JobSet"] = [jobset()]
    runs.subscribe("r1")
    runs.wait_for_list("r1", "JobSet")
    cluster.objects.clear()
    cluster.version = ""  # as of a proxy that answers with an empty object
    cluster.stream("JobSet").send(None)
    away = runs.wait("r1", Away)
    assert away.why == "the cluster's answer cannot be read: it is no list of JobSet objects"
    assert not any(is_gone(one) for one in runs.seen["r1"])


# --- the watcher itself


def test_nothing_is_watched_for_nobody(cluster: FakeCluster, runs: Runs) -> None:
    first, second = runs.subscribe("r1"), runs.subscribe("r2")
    stream = cluster.stream("Pod")
    first.close()
    assert not stream.is_closed.is_set()
    second.close()
    assert stream.is_closed.wait(TIMEOUT)
    cluster.objects["Pod"] = [pod("a", "r3")]
    runs.subscribe("r3")  # it begins anew
    assert runs.wait("r3", PodChanged).pod.name == "a"


def test_a_bug_ends_the_runs(cluster: FakeCluster, runs: Runs) -> None:
    runs.subscribe("r1")
    cluster.stream("Pod").send(ZeroDivisionError())
    runs.run_until(lambda: runs.failures)
    assert isinstance(runs.failures.pop(), ZeroDivisionError)


def test_it_watches_a_server(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    pods = [pod("a")]
    streams = 0
    stopped = threading.Event()

    def lines() -> Iterator[Any]:
        if streams == 1:
            pods[:] = [pod("b")]
            yield event("ERROR", {"code": 410, "message": "too old resource version"})
        else:
            yield event("ADDED", pod("c"))
            stopped.wait(TIMEOUT)

    def answer(request: Request) -> Answer:
        nonlocal streams
        if request.path in ("/apis", "/version") or not request.path.endswith("/pods"):
            return Answer({"groups": [], "metadata": {"resourceVersion": "1"}})
        if "watch" not in request.query:
            return Answer({"metadata": {"resourceVersion": "1"}, "items": pods})
        streams += 1
        return Answer(stream=lines())

    stub = ApiStub(answer)
    runs = Runs(Watcher(Cluster(write_config(tmp_path / "config", stub.url))))
    try:
        subscription = runs.subscribe("r1")
        found = [runs.wait("r1", PodChanged) for _ in range(4)]
        assert [(one.pod.name, one.is_gone) for one in found] == [
            ("a", False),
            ("a", True),
            ("b", False),
            ("c", False),
        ]
        subscription.close()
    finally:
        stopped.set()
        stub.close()
        runs.loop.close()


def test_a_silent_stream_of_a_server_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kubernetes")
    monkeypatch.setattr(sessions, "_WATCH_SILENCE", 0.2)
    pods = [pod("a")]
    stopped = threading.Event()

    def silent() -> Iterator[Any]:
        yield event("BOOKMARK", {"metadata": {"resourceVersion": "2"}})
        pods[:] = [pod("b")]  # which the stream ought to say
        stopped.wait(TIMEOUT)

    def answer(request: Request) -> Answer:
        if not request.path.endswith("/pods"):
            return Answer({"groups": [], "metadata": {"resourceVersion": "1"}})
        if "watch" in request.query:
            return Answer(stream=silent())
        return Answer({"metadata": {"resourceVersion": "1"}, "items": pods})

    stub = ApiStub(answer)
    runs = Runs(Watcher(Cluster(write_config(tmp_path / "config", stub.url))))
    try:
        subscription = runs.subscribe("r1")
        found = [runs.wait("r1", PodChanged) for _ in range(3)]
        assert [(one.pod.name, one.is_gone) for one in found] == [
            ("a", False),
            ("a", True),
            ("b", False),
        ]
        subscription.close()
    finally:
        stopped.set()
        stub.close()
        runs.loop.close()


@pytest.mark.parametrize("odd", [{"metadata": 5}, 7, {"spec": {"containers": 3}}, None])
def test_an_odd_object_of_a_server_does_not_hide_the_others(
    tmp_path: Path, odd: object, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("kubernetes")
    stopped = threading.Event()

    def lines() -> Iterator[Any]:
        yield {"type": "MODIFIED", "object": odd}
        yield event("ADDED", pod("b"))
        stopped.wait(TIMEOUT)

    def answer(request: Request) -> Answer:
        if not request.path.endswith("/pods"):
            return Answer({"groups": [], "metadata": {"resourceVersion": "1"}})
        if "watch" in request.query:
            return Answer(stream=lines())
        return Answer({"metadata": {"resourceVersion": "1"}, "items": [odd, pod("a")]})

    stub = ApiStub(answer)
    runs = Runs(Watcher(Cluster(write_config(tmp_path / "config", stub.url))))
    try:
        subscription = runs.subscribe("r1")
        assert [runs.wait("r1", PodChanged).pod.name for _ in "ab"] == ["a", "b"]
        subscription.close()
    finally:
        stopped.set()
        stub.close()
        runs.loop.close()


@pytest.mark.parametrize("after", ["3600", "9" * 400, "0", "²", "soon"])
def test_pauses_are_limited(tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kubernetes")
    monkeypatch.setattr(answers, "LONGEST_WAIT", 0.05)
    refusals = iter([Answer({}, 429, {"Retry-After": after})])

    def answer(request: Request) -> Answer:
        if request.path.endswith("/pods") and "watch" not in request.query:
            listed = {"metadata": {"resourceVersion": "1"}, "items": [pod("a")]}
            return next(refusals, Answer(listed))
        return Answer({"groups": [], "metadata": {"resourceVersion": "1"}}, stream=None)

    stub = ApiStub(answer)
    runs = Runs(Watcher(Cluster(write_config(tmp_path / "config", stub.url))))
    try:
        subscription = runs.subscribe("r1")
        assert runs.wait("r1", PodChanged).pod.name == "a"
        subscription.close()
        assert runs.failures == []
    finally:
        stub.close()
        runs.loop.close()


def test_a_namespace_has_one_watcher(cluster: FakeCluster) -> None:
    one = cast(Cluster, cluster)
    first = watcher_of(one)
    assert watcher_of(one) is first
    observed = observed_watcher_of(one)
    assert observed_watcher_of(one) is observed
    assert observed is not first
    known = weakref.ref(first)
    del first
    assert known() is None  # nobody watches


def test_runs_of_user_jobsets_share_streams(cluster: FakeCluster) -> None:
    made = Runs(observed_watcher_of(cast(Cluster, cluster)))
    labels = {"jobset.sigs.k8s.io/jobset-name": "theirs"}
    pods = [pod("a"), pod("b")]
    for one in pods:
        one["metadata"]["labels"] = labels
    cluster.objects["Pod"] = pods
    theirs, other = made.subscribe("theirs"), made.subscribe("other")
    assert made.wait("theirs", PodChanged).pod.name == "a"
    made.wait_for_list("other", "Pod")
    assert not [one for one in made.changes["other"] if isinstance(one, PodChanged)]
    selector = "jobset.sigs.k8s.io/jobset-name,!muster.run/id"
    assert [one for one in cluster.calls if "list Pod" in one] == [f"list Pod {selector}"]
    theirs.close()
    other.close()
    assert cluster.is_closed.wait(TIMEOUT)
    made.loop.close()
