"""Start options of ADS YAML: which service gets which option."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.ads import (
    distributed,
    line_of,
    prepare_problems,
    read,
)


def test_options_of_all_nodes_reach_the_programs_that_have_them(folder: Path) -> None:
    words = ["--port 9999 --verbose --nthreads 2 --no-nanny", "--preload a.py"]
    spec, _ = read(folder, distributed(cluster={"config": {"startOptions": words}}))
    assert spec.framework_options == {
        "worker_on_main": False,
        "scheduler_args": ["--port", "9999", "--verbose", "--preload", "a.py"],
        "worker_args": ["--verbose", "--nthreads", "2", "--no-nanny", "--preload", "a.py"],
    }


def test_start_options_reach_their_service(folder: Path) -> None:
    cluster = {
        "config": {"startOptions": ["--preload a.py"]},
        "worker": {"replicas": 1, "config": {"startOptions": ["--nthreads 1", "--no-nanny"]}},
    }
    spec, _ = read(folder, distributed(cluster=cluster))
    assert spec.framework_options == {
        "worker_on_main": False,
        "scheduler_args": ["--preload", "a.py"],
        "worker_args": ["--nthreads", "1", "--no-nanny"],
    }


@pytest.mark.parametrize("role", ["main", "worker", "ps", None])
def test_unused_start_options_are_noted(folder: Path, role: str | None) -> None:
    given = {"config": {"startOptions": ["--verbose"]}}
    cluster = given if role is None else {role: {"replicas": 1, **given}}
    where = "config" if role is None else f"{role}.config"
    _, notes = read(folder, distributed("tensorflow", cluster=cluster))
    assert any(note.startswith(f"startOptions of {where} are not used") for note in notes)


def test_certificates_are_created_by_muster(folder: Path) -> None:
    cluster = {
        "certificate": {"caCert": {"id": "x"}, "cert": {"id": "y"}},
        "config": {"startOptions": ["--tls-key /k --tls-cert=/c", "--verbose"]},
    }
    spec, notes = read(folder, distributed(cluster=cluster))
    assert spec.framework_options["tls"] is True
    assert spec.framework_options["scheduler_args"] == ["--verbose"]
    assert any("certificates" in note for note in notes)


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        ("dask", ["--host", "1.2.3.4"], "--host: each node listens at its own address"),
        ("dask", ["--port none"], "--port: must be"),
        ("dask", ["--nworkers=2"], "--nworkers: the job sets the number"),
        ("ray", ["--temp-dir /x"], "--temp-dir: paths of Ray's sockets"),
        ("ray", ["--port 6379 --address x"], "--address: Muster gives workers the head's address"),
    ],
)
def test_options_of_all_nodes_are_refused_once_with_their_line(
    folder: Path, kind: str, words: list[str], message: str
) -> None:
    data = distributed(kind, cluster={"config": {"startOptions": words}})
    (problem,) = prepare_problems(folder, data)
    assert problem.message.startswith(message)
    assert problem.path == "spec.cluster.spec.config.startOptions"
    assert problem.source.endswith(line_of(folder, "startOptions"))


def test_options_of_a_role_are_refused_with_their_line(folder: Path) -> None:
    worker = {"replicas": 1, "config": {"startOptions": ["--min-worker-port 1"]}}
    (problem,) = prepare_problems(folder, distributed("ray", cluster={"worker": worker}))
    assert problem.path == "spec.cluster.spec.worker.config.startOptions"
    assert problem.hint.endswith("in a spec: `muster convert FILE --to muster`")
