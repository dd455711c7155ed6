"""Why streams into pods end."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.kubernetes.api_stub import Answer, ApiStub, Request, status, write_config
from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.exec_pipes import ExecPipes
from muster.engines.kubernetes.exec_streams import ExecStreams, exec_query, status_text
from muster.engines.kubernetes.profile import KubernetesProfile

pytest.importorskip("kubernetes")
TIMEOUT = 20.0
FORBIDDEN = (
    'pods "train-0" is forbidden: User "ana" cannot create resource "pods/exec" in API group "" '
    'in the namespace "team"'
)
Open = Callable[[KubernetesProfile], Callable[..., ExecPipes]]


@pytest.fixture
def streams() -> Iterator[Open]:
    made: list[ExecStreams] = []

    def of(profile: KubernetesProfile) -> Callable[..., ExecPipes]:
        one = ExecStreams(Cluster(profile).connection)
        made.append(one)

        def open_one(explain: Callable[[str], str] = lambda why: why) -> ExecPipes:
            return one.open("train-0", "node", ["true"], explain)

        return open_one

    yield of
    for one in made:
        one.close()


def why_ended(pipes: ExecPipes) -> str:
    assert select.select([pipes.reading], [], [], TIMEOUT)[0], "it has not ended"
    with pytest.raises(OSError) as error:
        pipes.recv(100)
    pipes.close()
    return str(error.value)


@pytest.mark.parametrize(
    ("ended", "error", "text"),
    [
        ({"status": "Success"}, b"noise\n", ""),
        ({"status": "Failure", "message": "exit code 1"}, b"", "exit code 1"),
        (
            {"status": "Failure", "message": "exit code 1"},
            b"first\nmuster-node: no server\n",
            "muster-node: no server",
        ),
        ({"status": "Failure", "message": "no\x1b[2J\r\nsuch  file"}, b"", "no?[2J such file"),
        ({"status": "Failure", "message": None}, b"", ""),
    ],
)
def test_how_a_program_has_ended(ended: dict[str, str], error: bytes, text: str) -> None:
    assert status_text(json.dumps(ended).encode(), error) == text


def test_words_are_sent_as_they_were_typed() -> None:
    query = exec_query("main", ("ls", os.fsdecode(b"caf\xe9"), "a b&c"))
    assert query.endswith("&command=ls&command=caf%E9&command=a+b%26c")


@pytest.mark.parametrize("status", [b"[]", b"7", b"null", b"not JSON"])
def test_a_status_that_is_none_is_shown(status: bytes) -> None:
    assert status_text(status, b"") == status.decode()


def test_a_status_that_is_nested_too_deeply_is_cut() -> None:
    assert status_text(b"[" * 100_000, b"") == "[" * 1000


def test_a_right_that_is_missing(streams: Open, tmp_path: Path) -> None:
    stub = ApiStub(lambda _: status(403, FORBIDDEN))
    opened = streams(write_config(tmp_path / "config", stub.url))()
    why = why_ended(opened)
    stub.close()
    assert why.startswith("ana may not create pods/exec in namespace team: its Role there lacks")


def test_an_ingress_that_lets_nobody_in(streams: Open, tmp_path: Path) -> None:
    stub = ApiStub(lambda _: Answer(b"<h1>403 Forbidden</h1>", 403))
    opened = streams(write_config(tmp_path / "config", stub.url))()
    assert why_ended(opened).startswith("what answers 403 is not the API server: ")
    stub.close()


def test_a_cluster_that_redirects(streams: Open, tmp_path: Path) -> None:
    stub = ApiStub(lambda _: Answer({}, 302, {"Location": "https://login.test/"}))
    opened = streams(write_config(tmp_path / "config", stub.url))()
    assert why_ended(opened).startswith("the cluster redirects to login.test: log in there")
    stub.close()


def test_who_knows_better_says_why(streams: Open, tmp_path: Path) -> None:
    stub = ApiStub(lambda _: status(500, "no"))
    opened = streams(write_config(tmp_path / "config", stub.url))(lambda why: f"node-1: {why}")
    assert why_ended(opened) == "node-1: no (500)"
    with pytest.raises(OSError, match="node-1: "):
        opened_again(streams, tmp_path, stub).send(b"x")
    stub.close()


def opened_again(streams: Open, folder: Path, stub: ApiStub) -> ExecPipes:
    """A stream that has ended."""
    one = streams(write_config(folder / "again", stub.url))(lambda why: f"node-1: {why}")
    assert select.select([one.reading], [], [], TIMEOUT)[0], "it has not ended"
    return one


def test_an_api_server_that_does_not_answer(streams: Open, tmp_path: Path) -> None:
    stub = ApiStub(lambda _: Answer())
    profile = write_config(tmp_path / "config", stub.url)
    stub.close()
    assert why_ended(streams(profile)()).startswith("the cluster does not answer: ")


def test_there_is_no_cluster(streams: Open, tmp_path: Path) -> None:
    profile = KubernetesProfile(kubeconfig=str(tmp_path / "nothing"))
    assert "there is no file" in why_ended(streams(profile)())


def test_credentials_that_were_replaced_are_read_again(streams: Open, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        newer = request.headers.get("Authorization", request.headers.get("authorization"))
        return status(500, "accepted") if newer == "Bearer newer" else status(401, "Unauthorized")

    stub = ApiStub(answer)
    profile = write_config(tmp_path / "config", stub.url, {"token": "older"})
    open_one = streams(profile)
    assert "does not accept the credentials" in why_ended(open_one())
    write_config(tmp_path / "config", stub.url, {"token": "newer"})
    assert why_ended(open_one()) == "accepted (500)"
    stub.close()
