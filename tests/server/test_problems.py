"""Errors as problem details, request ids, and what must not be in any answer or log line."""

from __future__ import annotations

import importlib
import io
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import muster
from muster.api.problems import ProblemDetails, details_of, error_of
from muster.errors import InvalidInput, MusterError, Problem
from muster.server.log import ServerLog
from support.teams import Teams, serving_teams


def kinds() -> list[type[MusterError]]:
    """Every class of error that Muster has."""
    for module in pkgutil.walk_packages(muster.__path__, "muster."):
        if ".node." not in module.name and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # of an extra
    found, waiting = [], [MusterError]
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: kind.__name__)


def test_every_error_arrives_as_itself() -> None:
    """Or, where it is made of more than texts, as the nearest class that is not."""
    for kind in kinds():
        problems = (Problem("nodes", "must be 1", "try 1"), Problem("", "wrong"))
        try:
            error = kind(*problems) if issubclass(kind, InvalidInput) else kind("wrong")
        except (TypeError, AttributeError):  # it is made of more than texts
            continue
        details = details_of(error, "request-1")
        assert 400 <= details.status < 600
        arrived = error_of(msgspec.json.decode(msgspec.json.encode(details), type=ProblemDetails))
        assert isinstance(error, type(arrived)), kind
        assert str(arrived) == str(error)
        if isinstance(arrived, InvalidInput):
            assert arrived.problems == error.problems  # type: ignore[attr-defined]


def test_an_unknown_error_is_the_nearest_known_one() -> None:
    details = ProblemDetails("muster:New", detail="wrong", kinds=("NotFound", "MusterError"))
    assert type(error_of(details)).__name__ == "NotFound"
    assert type(error_of(ProblemDetails("about:blank", detail="wrong"))) is MusterError


def test_a_defect_tells_nothing_but_the_request() -> None:
    details = details_of(ValueError("the password is hunter2"), "request-1")
    assert details.status == 500
    assert "hunter2" not in str(details)
    assert "request-1" in details.detail


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        yield made


def entries(teams: Teams) -> list[dict[str, Any]]:
    return [json.loads(line) for line in teams.log.getvalue().splitlines()]


def test_the_log_names_requests_as_their_answers_do(teams: Teams) -> None:
    reply = teams.request("GET", "/v1/runs/nothing", teams.token("anouk"))
    assert reply.json["instance"] == reply.headers["x-request-id"]
    (entry,) = [one for one in entries(teams) if one.get("request") == reply.json["instance"]]
    assert (entry["status"], entry["user"], entry["verb"]) == (404, "anouk", "GET")
    assert entry["path"] == "/v1/runs/nothing"


@pytest.mark.parametrize(
    "path", ["/v1/a%0ab", "/v1/a%1b%5b2J", '/v1/a"}{"level":"error', "/v1/%00"]
)
def test_what_clients_send_stays_in_its_line(teams: Teams, path: str) -> None:
    before = len(entries(teams))
    teams.request("GET", path, teams.token("anouk"), headers={"X-Header": "a\tb"})
    added = entries(teams)[before:]
    assert [entry["path"] for entry in added] == [path]


def test_secrets_are_in_no_answer_and_no_line(teams: Teams) -> None:
    word, given = "correct-horse-battery", teams.token("anouk")
    assert teams.request("PUT", "/v1/secrets/key", given, {"value": word}).status == 200
    teams.request("PUT", f"/v1/secrets/%20{word}", given, {"value": [word]})
    spec = {"name": "kite", "command": ["true"], "env": {"API_TOKEN": word}, "suspend": True}
    body = {"run": {"source": {"type": "spec", "spec": spec}}}
    answers = [
        teams.request("POST", "/v1/runs/preview", given, body),
        teams.request("POST", "/v1/runs", given, body),
    ]
    assert [answer.status for answer in answers] == [200, 201]
    run = answers[1].json
    for path in (
        "/v1/secrets",
        f"/v1/runs/{run['id']}",
        "/v1/runs",
        "/v1/run-records",
        f"/v1/jobs/{run['job_id']}",
        f"/v1/jobs/{run['job_id']}/spec",
        f"/v1/runs/{run['id']}/events",
        "/v1/audit",
        "/v1/tokens",
        "/v1/whoami",
    ):
        answers.append(teams.request("GET", path, given))
        assert answers[-1].status == 200, path
    for answer in answers:
        assert word.encode() not in answer.body
        assert given.rpartition("_")[2].encode() not in answer.body
    log = teams.log.getvalue().replace(f"%20{word}", "")  # a name, which the client chose
    assert word not in log
    assert given.rpartition("_")[2] not in log


def test_a_log_entry_is_a_line() -> None:
    file = io.StringIO()
    log = ServerLog(file)
    log.info("one\ntwo", path="a\r\nb\u2028c", data={"token": "x"})
    log.defect("failed", ValueError("three\nfour"))
    lines = file.getvalue().split("\n")
    assert len(lines) == 3 and lines[-1] == ""
    assert json.loads(lines[0])["message"] == "one\ntwo"
