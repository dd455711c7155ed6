"""The API server of the double: lists, watches, apply, errors and faults as real ones have them."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.jobset import jobset, replicated
from support.kube import Cluster
from support.kube.access import Rule
from support.kube.cluster import ADMIN
from support.kube.objects import ApiError, Obj

MAPS = "/api/v1/namespaces/default/configmaps"
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
APPLY = {"content-type": "application/apply-patch+yaml"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, processes=False) as made:
        yield made


@pytest.fixture
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    with client_of(cluster) as made:
        yield made


def client_of(cluster: Cluster, token: str = ADMIN) -> httpx.Client:
    authority = json.loads(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    context = ssl.create_default_context(cafile=authority["certificate-authority"])
    headers = {"authorization": f"Bearer {token}", "user-agent": "test/1"}
    return httpx.Client(base_url=cluster.server.url, verify=context, headers=headers, timeout=20)


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Obj:
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def apply(client: httpx.Client, obj: Obj, manager: str = "muster", **query: str) -> httpx.Response:
    place = JOBSETS if obj["kind"] == "JobSet" else MAPS
    return client.patch(
        f"{place}/{obj['metadata']['name']}",
        params={"fieldManager": manager, **query},
        content=json.dumps(obj),
        headers=APPLY,
    )


class Watch:
    """A watch in a thread."""

    def __init__(self, client: httpx.Client, path: str = MAPS, **query: Any) -> None:
        self.events: list[Obj] = []
        self.is_over = threading.Event()
        self._client, self._path, self._query = client, path, {"watch": "1", **query}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            with self._client.stream("GET", self._path, params=self._query) as answer:
                for line in answer.iter_lines():
                    self.events.append(json.loads(line))
        except httpx.HTTPError:
            pass
        self.is_over.set()

    def seen(self, kind: str = "") -> list[str]:
        """Kinds of events, and the names of their objects."""
        return [
            f"{one['type']} {one['object']['metadata'].get('name', '')}"
            for one in self.events
            if kind in ("", one["type"])
        ]


# --- lists and watches


def test_a_list_has_pages_of_one_state(client: httpx.Client) -> None:
    for name in "abcde":
        client.post(MAPS, json=config_map(name))
    first = client.get(MAPS, params={"limit": 2}).json()
    client.post(MAPS, json=config_map("bb"))
    client.delete(f"{MAPS}/e")
    names, answer = [], first
    while True:
        names += [one["metadata"]["name"] for one in answer["items"]]
        token = answer["metadata"].get("continue")
        if token is None:
            break
        answer = client.get(MAPS, params={"limit": 2, "continue": token}).json()
        assert answer["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names == list("abcde")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"labelSelector": "x=1"}, ["a"]),
        ({"labelSelector": "x!=1"}, ["b", "c"]),
        ({"labelSelector": "x"}, ["a", "b"]),
        ({"labelSelector": "!x"}, ["c"]),
        ({"labelSelector": "x in (1,2), y=1"}, ["b"]),
        ({"labelSelector": "x notin (2)"}, ["a", "c"]),
        ({"fieldSelector": "metadata.name=b"}, ["b"]),
        ({"fieldSelector": "metadata.name!=b"}, ["a", "c"]),
    ],
)
def test_selectors(client: httpx.Client, query: dict[str, str], names: list[str]) -> None:
    for name, labels in {"a": {"x": "1"}, "b": {"x": "2", "y": "1"}, "c": {}}.items():
        client.post(MAPS, json=config_map(name, labels))
    found = client.get(MAPS, params=query).json()["items"]
    assert [one["metadata"]["name"] for one in found] == names


def test_a_watch_begins_where_a_list_was(cluster: Cluster, client: httpx.Client) -> None:
    client.post(MAPS, json=config_map("a", {"x": "1"}))
    number = client.get(MAPS).json()["metadata"]["resourceVersion"]
    client.post(MAPS, json=config_map("b", {"x": "1"}))
    client.post(MAPS, json=config_map("c"))
    with client_of(cluster) as other:
        watch = Watch(other, resourceVersion=number, labelSelector="x=1", timeoutSeconds=20)
        # it no longer has the label: gone for who looks for that
        cluster.until(watch.seen)
        client.patch(
            f"{MAPS}/b",
            content=json.dumps({"metadata": {"labels": {"x": None}}}),
            headers={"content-type": "application/merge-patch+json"},
        )
        client.delete(f"{MAPS}/a")
        cluster.until(lambda: len(watch.seen()) == 3)
        assert watch.seen() == ["ADDED b", "DELETED b", "DELETED a"]


def test_bookmarks(cluster: Cluster, client: httpx.Client) -> None:
    cluster.server.bookmark_interval = 0.1
    with client_of(cluster) as other:
        watch = Watch(other, allowWatchBookmarks="true")
        client.post("/api/v1/namespaces/default/secrets", json={"metadata": {"name": "s"}})

        def is_known() -> bool:
            number = str(cluster.storage.number)
            return any(
                one["object"]["metadata"]["resourceVersion"] == number for one in watch.events
            )

        # a change of another kind moves it on, too
        cluster.until(is_known)
        assert set(watch.seen()) == {"BOOKMARK "}
        cluster.server.end_streams()
        assert watch.is_over.wait(20)


def test_a_watch_ends_after_its_time(cluster: Cluster, client: httpx.Client) -> None:
    with client_of(cluster) as other:
        assert Watch(other, timeoutSeconds=1).is_over.wait(20)


def test_the_history_is_compacted(cluster: Cluster, client: httpx.Client) -> None:
    number = client.get(MAPS).json()["metadata"]["resourceVersion"]
    page = client.post(MAPS, json=config_map("a")), client.post(MAPS, json=config_map("b"))
    assert all(one.status_code == 201 for one in page)
    token = client.get(MAPS, params={"limit": 1}).json()["metadata"]["continue"]
    cluster.storage.compact()
    with client_of(cluster) as other:
        watch = Watch(other, resourceVersion=number)
        assert watch.is_over.wait(20)
        (event,) = watch.events
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert event["object"]["reason"] == "Expired"
    gone = client.get(MAPS, params={"limit": 1, "continue": token})
    assert (gone.status_code, gone.json()["reason"]) == (410, "Expired")


def test_streams_end_or_say_nothing(cluster: Cluster, client: httpx.Client) -> None:
    with client_of(cluster) as other:
        client.post(MAPS, json=config_map("a"))
        watch = Watch(other)
        cluster.until(watch.seen)
        cluster.server.end_streams()
        assert watch.is_over.wait(20)
        assert watch.seen() == ["ADDED a"]
    with client_of(cluster) as other:
        watch = Watch(other)
        cluster.until(watch.seen)
        cluster.server.stall_streams()
        client.post(MAPS, json=config_map("b"))
        assert not watch.is_over.wait(0.5)
        assert watch.seen() == ["ADDED a"]
        cluster.server.drop_connections()
        assert watch.is_over.wait(20)


# --- apply


def test_an_apply_that_changes_nothing_writes_nothing(client: httpx.Client) -> None:
    obj = jobset([replicated("w", 1, 2)])
    first = apply(client, obj)
    assert first.status_code == 201
    again = apply(client, obj)
    assert again.status_code == 200
    assert again.json()["metadata"]["generation"] == 1
    (entry,) = first.json()["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("muster", "Apply")
    assert 'k:{"name":"w"}' in entry["fieldsV1"]["f:spec"]["f:replicatedJobs"]


def test_fields_of_others_are_kept_and_conflicts_refused(client: httpx.Client) -> None:
    apply(client, config_map("a", x="1", y="1"))
    other = apply(client, config_map("a", y="2"), "other")
    assert other.status_code == 409
    assert other.json()["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "muster"',
            "field": ".data.y",
        }
    ]
    assert 'Apply failed with 1 conflict: conflict with "muster": .data.y' in other.text.replace(
        '\\"', '"'
    )
    forced = apply(client, config_map("a", y="2", z="3"), "other", force="true")
    assert forced.json()["data"] == {"x": "1", "y": "2", "z": "3"}
    # what it does not say any more is removed, unless somebody else owns it
    assert apply(client, config_map("a")).json()["data"] == {"y": "2", "z": "3"}


def test_a_write_of_another_kind_takes_the_fields(client: httpx.Client) -> None:
    apply(client, config_map("a", x="1"))
    client.patch(
        f"{MAPS}/a",
        content=json.dumps({"data": {"x": "2"}}),
        headers={"content-type": "application/merge-patch+json"},
    )
    refused = apply(client, config_map("a", x="1"))
    assert refused.status_code == 409
    assert 'conflict with "test" using v1' in refused.json()["message"]


def test_an_apply_needs_a_manager_and_known_fields(client: httpx.Client) -> None:
    assert apply(client, config_map("a"), "").status_code == 422
    unknown = jobset()
    unknown["spec"]["maxRestarts"] = 3
    assert ".spec.maxRestarts: field not declared in schema" in apply(client, unknown).text
    refused = client.post(JOBSETS, json=unknown, params={"fieldValidation": "Strict"})
    assert refused.json()["message"] == 'strict decoding error: unknown field "spec.maxRestarts"'
    made = client.post(JOBSETS, json=unknown)
    assert "maxRestarts" not in made.json()["spec"]


# --- what is refused


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        ({"successPolicy": {"operator": "All", "targetReplicatedJobs": ["x"]}}, ["<nil>"]),
        ({"coordinator": {"replicatedJob": "x"}}, ["<nil>"]),
        (
            {
                "coordinator": {"replicatedJob": "a", "jobIndex": 5, "podIndex": 5},
                "startupPolicy": {"startupPolicyOrder": "Sometimes"},
            },
            ["spec.startupPolicy.startupPolicyOrder"],
        ),
        (
            {"network": {"subdomain": "x" * 64}, "coordinator": {"replicatedJob": "x"}},
            ["<nil>"] * 2,
        ),
    ],
)
def test_what_the_webhook_and_the_schema_refuse(
    client: httpx.Client, change: Obj, causes: list[str]
) -> None:
    answer = apply(client, jobset(**change))
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert [one["field"] for one in answer.json()["details"]["causes"]] == causes


def test_names_that_get_too_long(client: httpx.Client) -> None:
    made = jobset([replicated("w" * 30, 11, 2)], name="x" * 32)
    text = apply(client, made).json()["message"]
    assert text.startswith('admission webhook "vjobset.kb.io" denied the request: ')
    assert "job names generated for this JobSet will exceed 63 characters" in text


def test_what_may_not_change(client: httpx.Client) -> None:
    apply(client, jobset())
    answer = apply(client, jobset({"a": 1, "b": 4}))
    assert [one["field"] for one in answer.json()["details"]["causes"]] == ["spec.replicatedJobs"]
    assert apply(client, jobset(ttlSecondsAfterFinished=5)).status_code == 200


def test_errors_are_statuses(client: httpx.Client) -> None:
    gone = client.get(f"{MAPS}/x")
    assert gone.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "x" not found',
        "reason": "NotFound",
        "code": 404,
        "details": {"name": "x", "group": "", "kind": "configmaps"},
    }
    client.post(MAPS, json=config_map("a"))
    assert client.post(MAPS, json=config_map("a")).json()["reason"] == "AlreadyExists"
    old = client.get(f"{MAPS}/a").json()
    client.put(f"{MAPS}/a", json={**old, "data": {"x": "1"}})
    stale = client.put(f"{MAPS}/a", json={**old, "data": {"x": "2"}})
    assert stale.json()["reason"] == "Conflict"
    wrong = client.request("DELETE", f"{MAPS}/a", json={"preconditions": {"uid": "x"}})
    assert wrong.status_code == 409
    other = client.post("/api/v1/namespaces/none/configmaps", json={"metadata": {"name": "a"}})
    assert other.json()["message"] == 'namespaces "none" not found'
    large = config_map("b", x="y" * (1 << 20), z="z")
    assert client.post(MAPS, json=large).status_code == 422


def test_who_may_do_what(cluster: Cluster) -> None:
    rules = (Rule(["get", "patch"], ["configmaps"], [""], "default"),)
    cluster.grant("few", "ana", rules)
    with client_of(cluster, "few") as client:
        refused = client.get(MAPS)
        assert refused.status_code == 403
        assert refused.json()["message"] == (
            'configmaps is forbidden: User "ana" cannot list resource "configmaps" in API group ""'
            ' in the namespace "default"'
        )
        # to apply what does not exist is to create it
        assert "cannot create resource" in apply(client, config_map("a")).json()["message"]
        review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert client.post(path, json=review).json()["status"] == {"allowed": False}
        cluster.server.access.revoke("few")
        assert client.get(MAPS).json()["message"] == "Unauthorized"
    cluster.grant("short", "ana", None, seconds=0)
    with client_of(cluster, "short") as client:
        assert client.get(MAPS).status_code == 401


@pytest.mark.parametrize(("kubernetes", "code"), [((1, 34), 400), ((1, 36), 403)])
def test_exec_is_to_create_since_1_35(
    tmp_path: Path, kubernetes: tuple[int, int], code: int
) -> None:
    with Cluster(tmp_path, processes=False, kubernetes=kubernetes) as cluster:
        container = {"name": "node", "image": "i"}
        cluster.create(
            {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
        )
        cluster.grant("few", "ana", (Rule(["get"], ["pods/exec"]),))
        with client_of(cluster, "few") as client:
            answer = client.get("/api/v1/namespaces/default/pods/p/exec?command=true")
            assert answer.status_code == code


# --- deletion


def test_what_belongs_to_an_object_goes_with_it(cluster: Cluster, client: httpx.Client) -> None:
    uid = client.post(MAPS, json=config_map("owner")).json()["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    for policy, left in (("Foreground", []), ("Background", []), ("Orphan", ["owned"])):
        owned = config_map("owned")
        owned["metadata"]["ownerReferences"] = [{**owner, "blockOwnerDeletion": True}]
        client.post(MAPS, json=owned)
        client.request("DELETE", f"{MAPS}/owner", json={"propagationPolicy": policy})

        def names() -> list[str]:
            found = client.get(MAPS).json()["items"]
            return [one["metadata"]["name"] for one in found]

        cluster.until(lambda: names() == left)  # noqa: B023
        uid = client.post(MAPS, json=config_map("owner")).json()["metadata"]["uid"]
        owner["uid"] = uid


def test_a_namespace_goes_with_all_that_is_in_it(cluster: Cluster, client: httpx.Client) -> None:
    cluster.add_namespace("team")
    path = "/api/v1/namespaces/team/configmaps"
    client.post(path, json={"metadata": {"name": "a"}})
    client.delete("/api/v1/namespaces/team")
    cluster.until(lambda: client.get("/api/v1/namespaces/team").status_code == 404)
    assert client.post(path, json={"metadata": {"name": "b"}}).status_code == 404


# --- what it says about itself


def test_discovery(tmp_path: Path) -> None:
    versions: Any = {"jobset": (0, 9), "kubernetes": (1, 34)}
    with Cluster(tmp_path, processes=False, **versions) as cluster, client_of(cluster) as client:
        assert client.get("/version").json()["gitVersion"] == "v1.34.0"
        groups = [one["name"] for one in client.get("/apis").json()["groups"]]
        assert "jobset.x-k8s.io" in groups and "kueue.x-k8s.io" not in groups
        path = "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2"
        (schema,) = client.get(path).json()["components"]["schemas"].values()
        spec = schema["properties"]["spec"]["properties"]
        assert "dependsOn" in spec["replicatedJobs"]["items"]["properties"]
        assert "volumeClaimPolicies" not in spec


def test_without_jobset(tmp_path: Path) -> None:
    with Cluster(tmp_path, processes=False, jobset=None) as cluster, client_of(cluster) as client:
        assert client.get("/apis/jobset.x-k8s.io/v1alpha2").status_code == 404
        assert client.get(JOBSETS).status_code == 404


# --- faults


def test_faults(cluster: Cluster, client: httpx.Client) -> None:
    cluster.faults.add(status=429, retry_after=1, verb="create", resource="configmaps")
    busy = client.post(MAPS, json=config_map("a"))
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "1")
    cluster.faults.add(status=500, times=2)
    assert [client.get(MAPS).status_code for _ in range(3)] == [500, 500, 200]
    cluster.faults.add(drop="before", verb="create")
    with pytest.raises(httpx.HTTPError):
        client.post(MAPS, json=config_map("a"))
    assert client.get(MAPS).json()["items"] == []
    cluster.faults.add(drop="after", verb="patch")
    with pytest.raises(httpx.HTTPError):
        apply(client, config_map("a"))
    assert len(client.get(MAPS).json()["items"]) == 1
    before = time.monotonic()
    cluster.faults.add(delay=0.3)
    client.get(MAPS)
    assert time.monotonic() - before >= 0.3
    cluster.webhooks.jobset_refusal = ApiError(500, "InternalError", "no endpoints available")
    assert apply(client, jobset()).status_code == 500


def test_it_is_away_for_a_while(cluster: Cluster, client: httpx.Client) -> None:
    with cluster.away(), pytest.raises(httpx.HTTPError):
        client.get(MAPS)
    assert client.get(MAPS).status_code == 200
    assert [call.verb for call in cluster.calls] == ["list"]
