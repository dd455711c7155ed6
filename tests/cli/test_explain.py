"""`muster explain`: what a framework runs, in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.explain import explain
from muster.engines.local import addresses

DASK = """
framework: dask
command: [python, /code/train.py, "two words"]
nodes: {nodes}
network: isolated
ready_timeout: 90s
framework_options: {{tls: true, worker_args: [--no-nanny]}}
"""


def explained(folder: Path, text: str) -> list[str]:
    spec = folder / "job.yaml"
    spec.write_text(text)
    result = CliRunner().invoke(explain, [str(spec)], obj=None, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def group(lines: list[str], name: str) -> list[str]:
    """What is said of a group, below its headline."""
    blocks = "\n".join(lines).split("\n\n")
    (found,) = (block for block in blocks if block.startswith(f"group {name}:"))
    return [line.strip() for line in found.splitlines()]


@pytest.mark.shows("ads-configuration/dask-scheduler-port")
def test_what_serves_and_what_is_waited_for(tmp_path: Path) -> None:
    lines = explained(tmp_path, DASK.format(nodes=3))
    assert "port scheduler: 8786 on node-0" in lines
    main = group(lines, "main")
    assert main[0] == "group main: 1 node, 1 of its 1 replica must succeed"
    assert main[1] == "starts first, in this order:"
    said = dict(line.split(": ", 1) for line in main if ": " in line)
    assert said["scheduler"].startswith(
        "python -m muster.node.needs dask dask scheduler --host 10.77.0.1 --port 8786 "
    )
    assert main.index("writes what `muster logs RUN --service scheduler` shows") < main.index(
        f"worker: {said['worker']}"
    )
    assert "tls://10.77.0.1:8786 --host 10.77.0.1 --name node-0" in said["worker"]
    assert "--nthreads (the CPUs it may use) --memory-limit " in said["worker"]
    assert said["worker"].endswith("--no-dashboard --no-nanny")
    assert said["waits until 3 Dask workers have joined"] == (
        "node-0, node-1, node-2; 1m30s at most"
    )
    assert "runs python /code/train.py 'two words'" in main
    ca = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE=(the run's certificates)/ca.pem"
    assert ca in main
    workers = group(lines, "workers")
    assert workers[:2] == ["group workers: 2 nodes", "serves the others, with:"]
    assert not [line for line in workers if line.startswith("runs ")]


def test_many_names_are_not_all_told(tmp_path: Path) -> None:
    main = group(explained(tmp_path, DASK.format(nodes=12)), "main")
    (waits,) = (line for line in main if line.startswith("waits until"))
    assert "12 Dask workers have joined: node-0, node-1, node-2, node-3, node-4, ...;" in waits


def test_what_is_known_at_the_start_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands can be read as they would be typed, with words for what is not known."""
    monkeypatch.setattr(addresses, "allot", lambda _, n: [f"127.9.9.{i + 1}" for i in range(n)])
    text = "framework: mpi\ncommand: [solve, a b]\nnodes: 2\nprocesses_per_node: 2\n"
    lines = explained(tmp_path, text)
    assert "port relay: (a free port) on every node" in lines
    main = group(lines, "main")
    assert "MUSTER_RELAYS=127.9.9.1:(a free port),127.9.9.2:(a free port)" in main
    assert "is up when 127.9.9.1:(a free port) answers" in main
    (runs,) = (line for line in main if line.startswith("runs "))
    assert runs.startswith("runs python -m muster.node.mpi")
    assert runs.endswith("-- solve 'a b'")


def test_a_program_that_runs_more_than_once(tmp_path: Path) -> None:
    text = "command: [x]\nprocesses_per_node: 3\nenv: {API_TOKEN: abc, A: b}\n"
    (only,) = (group(explained(tmp_path, text), "workers"),)
    assert "runs x, 3 times on each node" in only
    assert "A=b" in only
    assert not [line for line in only if "abc" in line]
