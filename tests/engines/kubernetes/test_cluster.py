"""Calls of an API server, with the faults that happen on the way to one."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from msgspec.structs import replace

from engines.kubernetes.api_stub import (
    OBJECT,
    Answer,
    ApiStub,
    Request,
    event,
    status,
    write_config,
)
from muster.engines.grantees import Grantees
from muster.engines.kubernetes import access, connection, sessions, streams
from muster.engines.kubernetes.cluster import (
    RETRY_BRIEFLY,
    CannotCall,
    Cluster,
    Event,
    VersionExpired,
)
from muster.engines.kubernetes.examine import examine
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.queues import why_no_queue
from muster.engines.kubernetes.rights import rights
from muster.engines.kubernetes.versions import Versions
from muster.engines.kubernetes.workloads import read_jobset
from muster.errors import EngineError
from muster.storage.home import Home
from support.faults import until

pytest.importorskip("kubernetes")
Serve = Callable[[Callable[[Request], Answer]], ApiStub]
PODS = "/api/v1/namespaces/team/pods"
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "train"}}


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[ApiStub] = []

    def start(answer: Callable[[Request], Answer]) -> ApiStub:
        made.append(ApiStub(answer))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_PAUSE", 0.01)


def of(stub: ApiStub, path: Path, **user: Any) -> Cluster:
    return Cluster(write_config(path / "config", stub.url, user or None))


def after(*first: Answer, then: Answer | None = None) -> Callable[[Request], Answer]:
    """These answers, then always the same."""
    left = [*first]
    return lambda _: left.pop(0) if left else then or Answer({"metadata": {"uid": "1"}})


@pytest.mark.parametrize(
    ("location", "where"),
    [
        ("https://login.test:8443/?from=secret", "login.test"),
        ("/login", "another page of its own"),
        ("https://[x", "another page of its own"),
        (None, "another page of its own"),
    ],
)
def test_nothing_is_sent_where_the_cluster_redirects(
    serve: Serve, tmp_path: Path, location: str | None, where: str
) -> None:
    other = serve(after())
    headers = {} if location is None else {"Location": location}
    stub = serve(after(then=Answer({"metadata": {}}, 302, headers)))
    cluster = of(stub, tmp_path)
    for call in (lambda: cluster.read("Pod", "p"), cluster.connection.bind):
        with pytest.raises(CannotCall) as said:
            call()
        text = f"the cluster redirects to {where}: log in there, or correct `server`"
        assert str(said.value) == text and said.value.refused and not said.value.lasts
    away = serve(after(then=Answer({}, 307, {"Location": other.url})))
    with pytest.raises(CannotCall, match=r"redirects to 127\.0\.0\.1"):
        of(away, tmp_path).read("Pod", "p")
    assert other.requests == []


def test_an_object_is_applied(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after())
    assert of(stub, tmp_path).apply(MAP) == {"metadata": {"uid": "1"}}
    (request,) = stub.requests
    assert request.method == "PATCH"
    assert request.path == "/api/v1/namespaces/team/configmaps/train"
    assert request.query == {
        "fieldManager": "muster",
        "force": "false",
        "fieldValidation": "Strict",
    }
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"
    assert request.headers["authorization"] == "Bearer secret-1"
    assert request.body == MAP


def test_a_lost_answer_is_asked_for_again(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(Answer(is_lost=True)))
    of(stub, tmp_path).apply(MAP)
    first, second = stub.requests
    assert (first.method, first.path, first.body) == (second.method, second.path, second.body)


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_server_says_when_to_ask_again(
    serve: Serve, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    own, pause = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() == own:
            waits.append(seconds)
        else:  # of an earlier test
            pause(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    busy = status(code, "busy")._replace(headers={"Retry-After": "7"})
    of(serve(after(busy)), tmp_path).apply(MAP)
    assert waits == [7.0]


def test_it_is_not_asked_for_ever(serve: Serve, tmp_path: Path) -> None:
    cluster = of(serve(after(then=status(503, "no leader"))), tmp_path)
    with pytest.raises(CannotCall, match="no leader") as found:
        cluster.read("Pod", "p", retry_for=0.0)
    assert not found.value.refused


def test_events_are_asked_for_as_long_as_the_caller_waits(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(then=status(503, "no leader")))
    with pytest.raises(CannotCall, match="no leader"):
        of(stub, tmp_path).events("Pod", "train-0", retry_for=0.0)
    assert len(stub.requests) == 1


def test_a_refusal_has_all_causes(serve: Serve, tmp_path: Path) -> None:
    jobset = {
        "kind": "JobSet",
        "metadata": {"name": "train"},
        "spec": {"replicatedJobs": [{"name": "workers"}]},
    }
    causes = [
        {"field": "spec.replicatedJobs[0].replicas", "message": "too many"},
        {"field": "metadata.name", "message": "too long"},
    ]
    stub = serve(after(status(422, "JobSet is invalid", causes=causes)))
    with pytest.raises(CannotCall) as found:
        of(stub, tmp_path).apply(jobset)
    assert str(found.value) == "node_groups[workers].replicas: too many; name: too long"
    assert found.value.refused
    assert len(stub.requests) == 1  # nothing is refused twice


def test_renewed_credentials_are_read(serve: Serve, tmp_path: Path) -> None:
    valid = "secret-1"

    def answer(request: Request) -> Answer:
        is_valid = request.headers["authorization"] == f"Bearer {valid}"
        return OBJECT if is_valid else status(401, "Unauthorized")

    stub = serve(answer)
    cluster = of(stub, tmp_path)
    assert cluster.read("ConfigMap", "train") == OBJECT.body
    valid = "secret-2"
    of(stub, tmp_path, token=valid)
    assert cluster.read("ConfigMap", "train") == OBJECT.body
    assert len(stub.requests) == 3  # the second was refused
    valid = "secret-3"
    with pytest.raises(CannotCall, match="does not accept the credentials"):
        cluster.read("ConfigMap", "train")
    assert len(stub.requests) == 5


def test_a_plugin_gives_credentials(serve: Serve, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        '#!/bin/sh\necho \'{"apiVersion": "client.authentication.k8s.io/v1", '
        '"kind": "ExecCredential", "status": {"token": "of-plugin"}}\'\n'
    )
    plugin.chmod(0o755)
    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    stub = serve(after())
    of(stub, tmp_path, exec=user).read("Pod", "p")
    assert stub.requests[0].headers["authorization"] == "Bearer of-plugin"


def test_a_plugin_that_fails_says_why(serve: Serve, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\necho log in first >&2\nexit 3\n")
    plugin.chmod(0o755)
    user = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    stub = serve(after())
    with pytest.raises(
        CannotCall, match=r"plug-in .* of user u in .* has failed with exit code 3: log in first"
    ):
        of(stub, tmp_path, exec=user).read("Pod", "p")
    assert not stub.requests


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        (
            {"context": "nowhere"},
            'has no context nowhere; there are: here, there (did you mean "here"?)',
        ),
        ({"kubeconfig": "/no/such/file"}, "there is no file /no/such/file with the cluster"),
    ],
)
def test_a_wrong_context_names_those_that_there_are(
    tmp_path: Path, profile: dict[str, str], text: str
) -> None:
    made = write_config(tmp_path / "config", "http://127.0.0.1:1")
    wrong = KubernetesProfile(**{"kubeconfig": made.kubeconfig, **profile})
    with pytest.raises(CannotCall, match=re.escape(text)):
        Cluster(wrong).read("Pod", "p")


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    made = write_config(tmp_path / "config", "http://127.0.0.1:1")
    file = made.kubeconfig
    assert Cluster(made).connection.namespace == "team"
    assert (
        Cluster(KubernetesProfile(kubeconfig=file, context="there")).connection.namespace
        == "default"
    )
    assert (
        Cluster(KubernetesProfile(kubeconfig=file, namespace="own")).connection.namespace == "own"
    )
    assert Cluster(made).connection.access().url == "http://127.0.0.1:1"


def test_a_list_has_all_pages(serve: Serve, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        more = {"continue": "2"} if "continue" not in request.query else {}
        name = "b" if "continue" in request.query else "a"
        return Answer({"metadata": {"resourceVersion": "7", **more}, "items": [{"name": name}]})

    stub = serve(answer)
    found = of(stub, tmp_path).list("Pod", "x=y")
    assert ([one["name"] for one in found.items], found.version) == (["a", "b"], "7")
    assert [one.query.get("continue") for one in stub.requests] == [None, "2"]
    assert all(one.query["labelSelector"] == "x=y" for one in stub.requests)


def test_a_list_without_an_end_is_not_read_for_ever(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.engines.kubernetes.cluster._MOST_PAGES", 3)
    stub = serve(lambda _: Answer({"metadata": {"continue": "2"}, "items": [{"name": "a"}]}))
    with pytest.raises(CannotCall, match="its list of Pod objects does not end"):
        of(stub, tmp_path).list("Pod")
    assert len(stub.requests) == 3


def test_a_list_that_takes_too_long_is_begun_again(serve: Serve, tmp_path: Path) -> None:
    first = Answer({"metadata": {"continue": "2"}, "items": [{"name": "a"}]})
    whole = Answer({"metadata": {"resourceVersion": "9"}, "items": [{"name": "b"}]})
    stub = serve(after(first, status(410, "too old"), whole))
    found = of(stub, tmp_path).list("Pod")
    assert ([one["name"] for one in found.items], found.version) == (["b"], "9")


def test_what_is_not_there_is_deleted(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(status(404, 'pods "p" not found'), status(409, "Precondition failed")))
    cluster = of(stub, tmp_path)
    cluster.delete("Pod", "p")
    cluster.delete("Pod", "p", "uid-1")
    first, second = (one.body for one in stub.requests)
    assert first["propagationPolicy"] == "Background"
    assert second["preconditions"] == {"uid": "uid-1"}


#: What else than an API server may answer to a request.
INGRESS = Answer(b"404 page not found\n", 404)
LOGIN_PAGE = Answer(b"<html><h1>403 Forbidden</h1></html>", 403, {"Content-Type": "text/html"})
#: Of a manager of clusters that lets nobody in: JSON, but no Status.
OTHER_JSON = Answer({"type": "error", "status": "403", "message": "forbidden"}, 403)


def test_only_the_api_server_says_that_nothing_is_there(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(INGRESS, Answer({"message": "no route"}, 404)))
    of(stub, tmp_path).delete("Pod", "p")
    assert len(stub.requests) == 3  # it was tried again


@pytest.mark.parametrize("answer", [INGRESS, LOGIN_PAGE, OTHER_JSON])
def test_what_else_is_on_the_way_does_not_refuse(
    serve: Serve, tmp_path: Path, answer: Answer
) -> None:
    profile = write_config(tmp_path / "config", serve(lambda _: answer).url)
    cluster = Cluster(profile, retry_for=0.0)
    calls: list[Callable[[], object]] = [
        lambda: cluster.delete("JobSet", "train"),
        lambda: cluster.read("JobSet", "train"),
        lambda: cluster.apply(MAP),
        lambda: cluster.watch("Pod", "", "1"),
    ]
    text = (
        f"what answers {answer.status} is not the API server: check `server` of the cluster, and "
        "what is on the way, such as a proxy or an ingress"
    )
    for call in calls:
        with pytest.raises(CannotCall) as said:
            call()
        assert str(said.value) == text
        assert not said.value.refused and said.value.status is None


def test_a_cluster_is_not_known_by_what_is_on_the_way_to_it(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API server that does not show its namespaces is known by its address."""
    monkeypatch.setattr(connection, "RETRY_FOR", 0.0)
    with pytest.raises(CannotCall, match="what answers 403 is not the API server"):
        of(serve(lambda _: LOGIN_PAGE), tmp_path).connection.bind()


def test_the_api_server_answers_in_plain_text_for_a_group_it_does_not_know(
    serve: Serve, tmp_path: Path
) -> None:
    cluster = of(serve(lambda _: INGRESS._replace(headers={"Audit-Id": "1"})), tmp_path)
    with pytest.raises(CannotCall, match="JobSet is not installed") as said:
        cluster.read("JobSet", "train")
    assert said.value.refused and said.value.is_unknown


def test_what_cannot_be_deleted_is_not(serve: Serve, tmp_path: Path) -> None:
    cluster = of(serve(after(status(409, "a finalizer"))), tmp_path)
    with pytest.raises(CannotCall, match="a finalizer"):
        cluster.delete("Pod", "p")


def pod(version: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "resourceVersion": version}}


def test_changes_are_a_stream(serve: Serve, tmp_path: Path) -> None:
    lines = [event("ADDED", pod("8")), event("BOOKMARK", pod("9"))]
    text = b'\n{"type": "MODIFIED", "object": {"metadata": {"resourceVer'
    whole = iter([*lines, text, b'sion": "10"}}}\n', b'{"type": "DEL'])
    stub = serve(after(Answer(stream=whole)))
    found = [*of(stub, tmp_path).watch("Pod", "x=y", "7")]
    assert [(one.type, one.version) for one in found] == [
        ("ADDED", "8"),
        ("BOOKMARK", "9"),
        ("MODIFIED", "10"),
    ]  # what was cut off is not a change
    request = stub.requests[0].query
    assert request["resourceVersion"] == "7"
    assert request["allowWatchBookmarks"] == "true"
    assert request["labelSelector"] == "x=y"


def test_a_line_without_an_end_is_ended(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LONGEST_OBJECT", 100)
    part = b"x" * (1 << 18)
    lines = [b"first\n", *[part] * 9, b"\n", b"after it\n", part, part, part, part, part]
    stub = serve(lambda _: Answer(stream=iter(lines)))
    cluster = of(stub, tmp_path)
    found = [*cluster.stream_log("p", "node")]
    assert found == [b"first", 4 * part, b"after it", 4 * part]
    with pytest.raises(CannotCall, match="cannot be read"):
        [*of(serve(after(Answer(stream=iter([part])))), tmp_path).watch("Pod", "", "7")]


NESTED = b'{"a":' * 3000 + b"1" + b"}" * 3000
#: Objects that cannot be read.
UNREADABLE = [b'{"metadata": {"name": "\xff"}}', b'{"metadata": ' + NESTED + b"}", NESTED]


@pytest.mark.parametrize("item", UNREADABLE, ids=["no-utf-8", "nested", "other-fields"])
def test_an_object_that_cannot_be_read_is_said(serve: Serve, tmp_path: Path, item: bytes) -> None:
    page = b'{"metadata": {}, "items": [' + item + b"]}"
    line = b'{"type": "ADDED", "object": ' + item + b"}\n"
    error = line.replace(b"ADDED", b"ERROR")
    answers = [Answer(page)] * 3 + [Answer(stream=iter([one])) for one in (line, error)]
    left = [*answers, Answer(item, 500)]
    stub = serve(lambda _: left.pop(0))
    cluster = Cluster(write_config(tmp_path / "config", stub.url), retry_for=0.0)
    calls: list[Callable[[], object]] = [
        lambda: [*cluster.pages("Pod", excerpts=True)],
        lambda: cluster.list("Pod"),
        lambda: cluster.events("Pod", "p"),
        lambda: [*cluster.watch("Pod", "", "7")],
        lambda: [*cluster.watch("Pod", "", "7")],
    ]
    for call in calls:
        with pytest.raises(CannotCall, match="the cluster's answer cannot be read") as said:
            call()
        assert not said.value.refused
    with pytest.raises(CannotCall) as said:  # its text is shown as it is
        cluster.read("Pod", "p")
    assert said.value.status == 500


NO_LISTS = [{"metadata": "text", "items": []}, *({"items": one} for one in (7, "abc"))]


@pytest.mark.parametrize(
    ("body", "excerpts"),
    # an item that is no object does not hide the others of which excerpts are read
    [
        ({"items": ["abc"]}, False),
        *((body, excerpts) for body in NO_LISTS for excerpts in (False, True)),
    ],
)
def test_a_list_of_another_shape_cannot_be_read(
    serve: Serve, tmp_path: Path, body: dict[str, Any], excerpts: bool
) -> None:
    stub = serve(after(then=Answer(body)))
    cluster = Cluster(write_config(tmp_path / "config", stub.url), retry_for=0.0)
    with pytest.raises(CannotCall, match="the cluster's answer cannot be read"):
        [*cluster.pages("Pod", excerpts=excerpts)]
    if body["items"]:
        with pytest.raises(CannotCall, match="the cluster's answer cannot be read"):
            cluster.events("Pod", "p")


NO_OBJECTS = [{"status": "Success"}, {"metadata": "x"}, {"metadata": {}}, {"metadata": {"uid": 7}}]


@pytest.mark.parametrize("body", NO_OBJECTS)
def test_an_answer_that_is_no_object_is_asked_for_again(
    serve: Serve, tmp_path: Path, body: dict[str, Any]
) -> None:
    calls: list[Callable[[Cluster], object]] = [
        lambda cluster: cluster.apply(MAP),
        lambda cluster: cluster.apply(MAP, dry_run=True),
        lambda cluster: cluster.create(MAP),
        lambda cluster: cluster.read("ConfigMap", "train"),
    ]
    for call in calls:
        assert call(of(serve(after(Answer(body))), tmp_path)) == OBJECT.body
        stub = serve(after(then=Answer(body)))
        cluster = Cluster(write_config(tmp_path / "config", stub.url), retry_for=0.0)
        with pytest.raises(CannotCall) as said:
            call(cluster)
        assert str(said.value) == "the cluster's answer cannot be read: it is no ConfigMap"
        assert not said.value.refused


#: What each call finds in the place of what it requested.
OTHERS: list[dict[str, Any]] = [
    {"status": "Success"},
    {"status": ["x"], "groups": 5},
    {"groups": [], "major": "9" * 5000, "minor": "1"},
    {"groups": [], "major": {}, "minor": 4},
    {"groups": [], "major": "1", "minor": "34", "status": 7, **OBJECT.body, "spec": [1]},
]


@pytest.mark.parametrize("body", OTHERS)
def test_a_check_finds_answers_of_another_shape(
    serve: Serve, tmp_path: Path, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.engines.kubernetes.examine.RETRY_BRIEFLY", 0.0)
    profile = write_config(tmp_path / "config", serve(after(then=Answer(body))).url)
    found = examine(replace(profile, claim="data"), "lab", Home(tmp_path))
    bad = [one for one in found if not one.works]
    assert bad and all("the cluster's answer cannot be read" in one.says for one in bad)
    assert "cannot be read" in why_no_queue(Cluster(profile, retry_for=0.0), "q")


def test_objects_without_names_do_not_end(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(then=Answer({"items": [{}]})))
    cluster = Cluster(write_config(tmp_path / "config", stub.url), retry_for=0.0)
    with pytest.raises(CannotCall, match="the cluster's answer cannot be read"):
        cluster.wait_until_gone("Pod", "", timeout=-1.0)


def test_changes_that_are_too_old_are_gone(serve: Serve, tmp_path: Path) -> None:
    error = event("ERROR", {"code": 410, "message": "too old resource version: 1 (7)"})
    stub = serve(after(status(410, "too old"), Answer(stream=iter([error]))))
    cluster = of(stub, tmp_path)
    with pytest.raises(VersionExpired):
        cluster.watch("Pod", "", "1")
    with pytest.raises(VersionExpired):
        next(iter(cluster.watch("Pod", "", "1")))


def test_a_silent_stream_ends(serve: Serve, tmp_path: Path) -> None:
    done = threading.Event()

    def lines() -> Iterator[Any]:
        yield event("ADDED", pod("8"))
        done.wait(240)

    stub = serve(after(Answer(stream=lines())))
    watch = of(stub, tmp_path).watch("Pod", "", "7")
    events = iter(watch)
    assert next(events).version == "8"
    sock = watch._stream._answer._connection.sock  # type: ignore[attr-defined]
    assert sock.gettimeout() == sessions._WATCH_SILENCE
    sock.settimeout(0.2)  # of the rest
    assert [*events] == []
    assert not done.is_set()
    done.set()


def test_a_stream_is_ended_by_another_thread(serve: Serve, tmp_path: Path) -> None:
    done = threading.Event()

    def lines() -> Iterator[Any]:
        yield event("ADDED", pod("8"))
        done.wait(240)

    watch = of(serve(after(Answer(stream=lines()))), tmp_path).watch("Pod", "", "7")
    found: list[Event] = []
    first = threading.Event()

    def read() -> None:
        for one in watch:
            found.append(one)
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert first.wait(60)
    watch.close()
    thread.join(60)
    assert not thread.is_alive()
    done.set()


def test_a_server_that_is_away_is_named(tmp_path: Path) -> None:
    cluster = Cluster(write_config(tmp_path / "config", "http://127.0.0.1:1"))
    with pytest.raises(CannotCall) as found:
        [*cluster.pages("Pod", retry_for=0.0)]
    assert str(found.value) == "the cluster does not answer: 127.0.0.1:1 refuses connections"
    assert not found.value.refused


def test_a_name_that_does_not_resolve_is_named(tmp_path: Path) -> None:
    cluster = Cluster(write_config(tmp_path / "config", "https://cluster.invalid"))
    text = r"the cluster does not answer: the name cluster\.invalid cannot be resolved$"
    with pytest.raises(CannotCall, match=text):
        [*cluster.pages("Pod", retry_for=0.0)]


def test_a_person_who_waits_is_answered_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile, waits = write_config(tmp_path / "config", "http://127.0.0.1:1"), list[float]()
    now = 0.0

    own, pause = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        nonlocal now
        if threading.get_ident() != own:  # of an earlier test
            pause(seconds)
            return
        now += seconds
        waits.append(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    (finding,) = examine(profile, "lab", Home(tmp_path))
    assert "refuses connections" in finding.says
    assert f"`kubectl --kubeconfig {profile.kubeconfig} cluster-info`" in finding.advice
    assert "refuses connections" in rights(profile, Grantees())
    with pytest.raises(EngineError, match="refuses connections"):
        read_jobset(profile, "jobset/train", None)
    assert 0 < sum(waits) <= 3 * RETRY_BRIEFLY


def test_the_log_is_bytes(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(Answer(b"\xffline\n")))
    log = of(stub, tmp_path).log("p", "node", "2026-01-01T00:00:00Z", lines=5)
    assert log == b"\xffline\n"
    request = stub.requests[0]
    assert request.path == f"{PODS}/p/log"
    assert request.query == {
        "container": "node",
        "sinceTime": "2026-01-01T00:00:00Z",
        "tailLines": "5",
    }


def test_what_is_installed_is_known(serve: Serve, tmp_path: Path) -> None:
    spec = {"properties": {"volumeClaimPolicies": {}}}
    jobset = {"properties": {"spec": spec}}
    answers = {
        "/version": {"major": "1", "minor": "34+"},
        "/apis": {
            "groups": [
                {"name": "jobset.x-k8s.io", "versions": [{"version": "v1alpha2"}]},
                {"name": "kueue.x-k8s.io", "versions": [{"version": "v1beta1"}]},
            ]
        },
        "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2": {
            "components": {"schemas": {"io.x-k8s.jobset.v1alpha2.JobSet": jobset}}
        },
    }
    lists = "/apis/kueue.x-k8s.io/v1beta1/namespaces/team/workloads"
    stub = serve(lambda request: Answer(answers.get(request.path, {"items": []})))
    cluster = of(stub, tmp_path)
    assert cluster.versions() == Versions((1, 34), (0, 11), (0, 2))
    assert cluster.versions() == Versions((1, 34), (0, 11), (0, 2))
    assert len(stub.requests) == 3
    cluster.list("Workload")  # with the version that there is
    assert stub.requests[-1].path == lists


def test_kueue_may_be_installed_later(serve: Serve, tmp_path: Path) -> None:
    groups: list[dict[str, Any]] = []
    stub = serve(lambda _: Answer({"groups": groups, "items": []}))
    cluster = of(stub, tmp_path)
    cluster.list("Workload")
    assert "/v1beta2/" in stub.requests[-1].path
    groups.append({"name": "kueue.x-k8s.io", "versions": [{"version": "v1beta1"}]})
    for _ in range(2):
        cluster.list("Workload")
        assert "/v1beta1/" in stub.requests[-1].path
    assert stub.paths().count("GET /apis") == 2


def test_those_who_wait_for_the_versions_fail_together(
    serve: Serve, tmp_path: Path, waiting: set[int]
) -> None:
    """They do not wait one after the other for a cluster that does not answer."""
    profile = write_config(tmp_path / "config", serve(after()).url)
    session = connection.Session(access.load(profile, {}))
    shared, calls = sessions.Shared(lambda: session), list[int]()
    errors: list[CannotCall] = []

    def find() -> Versions:
        calls.append(1)
        until(lambda: len(waiting) == 8, "all wait")
        raise CannotCall("no answer", refused=False)

    def ask() -> None:
        try:
            shared.versions(find)
        except CannotCall as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(errors), len(calls)) == (8, 1)
    assert shared.versions(Versions) == Versions()  # they are found later


def test_what_nobody_uses_any_more_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    """Also if nobody has closed it."""
    cluster = of(serve(after()), tmp_path)
    cluster.read("Pod", "p")
    kept = ref(cluster.connection._sharing())
    gc.disable()
    try:
        del cluster
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("code", [403, 500])
def test_a_schema_that_is_not_shown_is_the_newest(serve: Serve, tmp_path: Path, code: int) -> None:
    groups = [{"name": "jobset.x-k8s.io", "versions": [{"version": "v1alpha2"}]}]

    def answer(request: Request) -> Answer:
        if request.path.startswith("/openapi"):
            return status(code, "not now")
        return Answer({"groups": groups, "major": "1", "minor": "34"})

    profile = write_config(tmp_path / "config", serve(answer).url)
    cluster = Cluster(profile, retry_for=0.05)
    if code == 403:
        assert cluster.versions().jobset == Versions().jobset
    else:  # it may be shown later
        with pytest.raises(CannotCall, match="not now"):
            cluster.versions()


def test_a_list_that_is_forgotten_again_and_again_ends(serve: Serve, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if "continue" in request.query:
            return status(410, "the provided continue parameter is too old")
        return Answer({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []})

    stub = serve(answer)
    with pytest.raises(CannotCall, match="has forgotten a list of Pod objects") as found:
        of(stub, tmp_path).list("Pod")
    assert not found.value.refused
    assert len(stub.requests) == 6


def test_a_stream_that_nobody_reads_is_closed(serve: Serve, tmp_path: Path) -> None:
    stub = serve(lambda _: Answer(stream=iter([event("BOOKMARK", {})])))
    watch = of(stub, tmp_path).watch("Pod", "", "1")
    watch.close()
    assert watch._stream._answer.closed


def test_another_version_of_jobset_is_refused(serve: Serve, tmp_path: Path) -> None:
    versions = [{"version": "v1"}, {"version": "v1beta1"}]
    groups = Answer({"groups": [{"name": "jobset.x-k8s.io", "versions": versions}]})
    with pytest.raises(CannotCall, match="JobSet's API v1, v1beta1; this Muster needs v1alpha2"):
        of(serve(after(then=groups)), tmp_path).versions()


def test_events_of_an_object_are_read(serve: Serve, tmp_path: Path) -> None:
    stub = serve(after(then=Answer({"items": [{"message": "no"}]})))
    assert of(stub, tmp_path).events("Job", "train-0", "FailedCreate") == [{"message": "no"}]
    (request,) = stub.requests
    assert request.path == "/api/v1/namespaces/team/events"
    about = "involvedObject.kind=Job,involvedObject.name=train-0,reason=FailedCreate"
    assert request.query["fieldSelector"] == about


def test_missing_rights_are_named(serve: Serve, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        wanted = request.body["spec"]["resourceAttributes"]
        is_log = wanted.get("subresource") == "log"
        assert wanted["namespace"] == "team"
        return Answer({"status": {"allowed": not is_log}})

    cluster = of(serve(answer), tmp_path)
    wanted = [("list", "", "pods"), ("get", "", "pods/log")]
    assert cluster.missing_verbs(wanted) == [("get", "", "pods/log")]
