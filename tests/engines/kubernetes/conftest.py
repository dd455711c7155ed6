"""Runs in a double of a cluster, in which nothing is left after a test, and a server with TLS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.api_stub import OBJECT, ApiStub
from muster.client.client import Client
from muster.engines.kubernetes import sessions
from support.certificates import TlsFiles, write_certificate
from support.kube import Cluster
from support.kube_engine import add_engine, require_client
from support.kube_runs import PATIENCE, Job, until_nothing_is_left

StartJob = Callable[..., Job]


@pytest.fixture
def cluster_options() -> dict[str, Any]:
    """How the test's cluster is made: see `Cluster`."""
    return {}


@pytest.fixture
def cluster(
    tmp_path: Path, own_home: Path, client: Client, cluster_options: dict[str, Any]
) -> Iterator[Cluster]:
    """The cluster of the engine `kubernetes`."""
    require_client()
    folder = tmp_path / "kube"
    folder.mkdir()
    with Cluster(**{"folder": folder, "nodes": 3, **cluster_options}) as made:
        add_engine(own_home, made)
        yield made
        for run in client.runs():
            if not run.done:
                run.cancel("the test is over").wait(PATIENCE)
        until_nothing_is_left(made)


@pytest.fixture
def start(tmp_path: Path, cluster: Cluster) -> StartJob:
    def one(nodes: int = 2, **more: Any) -> Job:
        return Job(tmp_path, nodes, **more)

    return one


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that wait for what sessions share, or have waited."""
    found: set[int] = set()

    class Time:
        @staticmethod
        def monotonic() -> float:
            """The first time is that since which a thread waits."""
            now = time.monotonic()
            found.add(threading.get_ident())
            return now

    monkeypatch.setattr(sessions, "time", Time)
    return found


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    """Those of a host `api.test`."""
    return write_certificate(tmp_path, "api.test")


@pytest.fixture
def tls_server(tls: TlsFiles) -> Iterator[ApiStub]:
    """Answers each call with an object."""
    made = ApiStub(lambda _: OBJECT, tls)
    yield made
    made.close()
