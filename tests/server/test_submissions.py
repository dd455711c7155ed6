"""Requests that are sent again: idempotency keys."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from muster.identity import id_of
from muster.server import submissions
from muster.service.embedded import EmbeddedAPI
from muster.storage import request_keys
from muster.store.records import RunFilter
from support.teams import Reply, Teams, serving_teams


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


def body(command: str = "true", **fields: Any) -> dict[str, Any]:
    spec = {"name": "kite", "command": ["sh", "-c", command], "suspend": True, **fields}
    return {"run": {"source": {"type": "spec", "spec": spec}}}


def post(teams: Teams, token: str, key: str, what: Any, path: str = "/v1/runs") -> Reply:
    return teams.request("POST", path, token, what, headers={"Idempotency-Key": key})


def count(teams: Teams) -> int:
    return len(teams.api("anouk").runs(RunFilter()))


def test_a_request_that_is_repeated_starts_one_run(teams: Teams) -> None:
    token, before = teams.token("anouk"), count(teams)
    first, second = (post(teams, token, "a", body()) for _ in range(2))
    assert (first.status, second.status) == (201, 201)
    assert first.json["id"] == second.json["id"]
    assert count(teams) == before + 1


def test_keys_are_of_a_user(teams: Teams) -> None:
    for token in (teams.token("anouk"), teams.token("root")):
        assert post(teams, token, "mine", body()).status == 201
    runs = teams.api("anouk").runs(RunFilter())
    assert runs


def test_a_key_is_for_one_content_and_path(teams: Teams) -> None:
    token, before = teams.token("anouk"), count(teams)
    assert post(teams, token, "b", body()).status == 201
    for again in (
        post(teams, token, "b", body("false")),
        post(teams, token, "b", body()["run"]["source"], "/v1/jobs"),
    ):
        assert (again.status, again.problem) == (409, "Conflict")
    assert count(teams) == before + 1


def test_a_refused_request_may_be_corrected(teams: Teams) -> None:
    token = teams.token("anouk")
    assert post(teams, token, "c", body(nodes=0)).status == 422
    assert post(teams, token, "c", body(nodes=1)).status == 201


def test_requests_at_the_same_time_start_one_run(teams: Teams) -> None:
    token, before = teams.token("anouk"), count(teams)
    with ThreadPoolExecutor(8) as pool:
        replies = [
            *pool.map(lambda _: post(teams, token, "d", body("true", suspend=False)), "x" * 16)
        ]
    assert {reply.status for reply in replies} == {201}
    assert len({reply.json["id"] for reply in replies}) == 1
    assert count(teams) == before + 1


def test_requests_that_wait_keep_nobody_out(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than there are threads, while the same request is carried out for long."""
    monkeypatch.setattr(submissions, "_WAITS", [0.05] * 40)
    token = teams.token("anouk")
    caller = teams.caller(token)
    name = id_of(caller.project, caller.user, "slow")
    with request_keys.held(teams.backend.home, name, "content"), ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(post, teams, token, "slow", body()) for _ in range(40)]
        assert teams.request("GET", "/v1/runs", token).status == 200
        assert not all(one.done() for one in waiting)
        replies = [one.result() for one in waiting]
    assert {(reply.status, reply.problem) for reply in replies} == {(503, "StoreBusy")}


def test_jobs_are_created_once(teams: Teams) -> None:
    token = teams.token("anouk")
    source = {**body("echo job")["run"]["source"], "new": True}
    first, second = (post(teams, token, "e", source, "/v1/jobs") for _ in range(2))
    assert first.json["id"] == second.json["id"]
    other = post(teams, token, "f", source, "/v1/jobs")
    assert other.json["id"] != first.json["id"]


@pytest.mark.parametrize("key", ["x" * 256, "x" * 5000])
def test_long_keys_are_refused(teams: Teams, key: str) -> None:
    reply = post(teams, teams.token("anouk"), key, body())
    assert (reply.status, reply.problem) == (422, "InvalidInput")
    assert "Idempotency-Key: has" in reply.json["detail"]


def test_files_of_the_server_are_not_read_for_a_client(teams: Teams, tmp_path: Path) -> None:
    """As the server, whose rights are not the client's."""
    listed, conda = tmp_path / "list.txt", tmp_path / "conda.yaml"
    listed.write_text("-r /etc/passwd\nword-of-the-server\n")
    conda.write_text("dependencies: [python, word-of-the-server]\n")
    token = teams.token("anouk")
    for field, given in (
        ("requirements", str(listed)),
        ("requirements", [str(listed)]),
        ("conda", str(conda)),
    ):
        run = body(**{field: given})
        source = run["run"]["source"]
        for path, what in (
            ("/v1/jobs", source),
            ("/v1/jobs/preview", source),
            ("/v1/runs", run),
            ("/v1/runs/preview", run),
        ):
            reply = teams.request("POST", path, token, what)
            assert (reply.status, reply.problem) == (422, "InvalidInput"), (field, path)
            assert "is a file of a machine" in reply.json["detail"]
            assert "word-of-the-server" not in reply.body.decode()


def test_urls_of_the_servers_network_are_refused(teams: Teams) -> None:
    url = "http://169.254.169.254/latest"
    run = body("true", mounts=[{"source": url}], suspend=False)
    for path in ("/v1/runs", "/v1/runs/preview"):
        reply = teams.request("POST", path, teams.token("anouk"), run)
        assert (reply.status, reply.problem) == (422, "InvalidInput"), path
        text = f"mounts[0].source: {url}: it leads to an address of the server's own network"
        assert reply.json["detail"].startswith(text)


def test_the_process_that_fetches_refuses_what_was_not_known_before(teams: Teams) -> None:
    """Here, the address of the store is in a variable."""
    found = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    run = body("true", mounts=[{"source": "s3://bucket/x"}], suspend=False)
    run["run"]["environ"] = {**found, "FSSPEC_S3_ENDPOINT_URL": "http://127.0.0.1:9"}
    reply = teams.request("POST", "/v1/runs", teams.token("anouk"), run)
    assert reply.status == 201, reply
    api = teams.api("anouk")
    for _ in api.watch(reply.json["id"], 120):
        pass
    details = api.run(reply.json["id"]).details
    assert "s3://bucket/x: it leads to an address of the server's own network" in details


def test_keys_of_long_ago_are_forgotten(own_home: Path) -> None:
    home = EmbeddedAPI().home
    with request_keys.held(home, "key", "content"):
        pass
    modified = (home.requests / "key").stat().st_mtime
    request_keys.remove_old(home, modified + request_keys.KEPT - 1)
    assert (home.requests / "key").exists()
    request_keys.remove_old(home, modified + request_keys.KEPT)
    assert not (home.requests / "key").exists()
