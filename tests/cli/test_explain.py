"""`muster explain`: the description of a framework's services."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.cli.explain import explain
from muster.engines.local.network import addresses
from support.ssh_hosts import write_profile

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
    """The lines about a group, below its heading."""
    blocks = "\n".join(lines).split("\n\n")
    (found,) = (block for block in blocks if block.startswith(f"group {name}:"))
    return [line.strip() for line in found.splitlines()]


@pytest.mark.shows("ads-configuration/dask-scheduler-port")
def test_services_and_checks_of_a_framework_are_shown(tmp_path: Path) -> None:
    lines = explained(tmp_path, DASK.format(nodes=3))
    assert "port scheduler: 8786 on node-0" in lines
    main = group(lines, "main")
    assert main[0] == "group main: 1 node, which must succeed"
    assert main[1] == "starts first, in this order:"
    given = dict(line.split(": ", 1) for line in main if ": " in line)
    assert given["scheduler"].startswith(
        "python -m muster.node.requirements dask dask scheduler --host 10.77.0.1 --port 8786 "
    )
    assert main.index("output: `muster logs RUN --service scheduler`") < main.index(
        f"worker: {given['worker']}"
    )
    assert "tls://10.77.0.1:8786 --host 10.77.0.1 --name node-0" in given["worker"]
    assert "--nthreads (the CPUs it may use) --memory-limit " in given["worker"]
    assert given["worker"].endswith("--no-dashboard --no-nanny")
    assert given["waits until 3 Dask workers have joined"] == (
        "node-0, node-1, node-2; at most 1m30s"
    )
    assert "runs python /code/train.py 'two words'" in main
    ca = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE=(the run's certificates)/ca.pem"
    assert f"{ca}  # set by the framework" in main
    workers = group(lines, "workers")
    assert workers[:2] == ["group workers: 2 nodes", "serves the other nodes with:"]
    assert not [line for line in workers if line.startswith("runs ")]


def test_long_lists_of_names_are_shortened(tmp_path: Path) -> None:
    main = group(explained(tmp_path, DASK.format(nodes=12)), "main")
    (waits,) = (line for line in main if line.startswith("waits until"))
    assert "12 Dask workers have joined: node-0, node-1, node-2, node-3, node-4, ...;" in waits


def test_values_known_only_at_run_time_are_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands are shown as one would type them, with descriptions of unknown values."""
    monkeypatch.setattr(addresses, "allocate", lambda _, n: [f"127.9.9.{i + 1}" for i in range(n)])
    text = "framework: mpi\ncommand: [solve, a b]\nnodes: 2\nprocesses_per_node: 2\n"
    lines = explained(tmp_path, text)
    assert "port relay: a free port on every node" in lines
    main = group(lines, "main")
    relays = "MUSTER_RELAYS=127.9.9.1:(a free port),127.9.9.2:(a free port)  # set by the framework"
    assert relays in main
    assert "is ready when 127.9.9.1:(a free port) answers" in main
    (runs,) = (line for line in main if line.startswith("runs "))
    assert runs.startswith("runs python -m muster.node.mpi")
    assert runs.endswith("-- solve 'a b'")


def test_the_number_of_processes_is_shown_and_secrets_are_not(tmp_path: Path) -> None:
    text = "command: [x]\nprocesses_per_node: 3\nenv: {API_TOKEN: abc, A: b}\n"
    only = group(explained(tmp_path, text), "workers")
    assert "runs x, 3 processes on each node" in only
    assert "A=b  # env" in only
    assert not [line for line in only if "abc" in line]


def test_variables_are_shown_with_their_origin(tmp_path: Path) -> None:
    env = "{OMP_NUM_THREADS: 4, MASTER_ADDR: here, NODE_RANK: 7}"
    text = f"framework: pytorch\ncommand: [x]\nnodes: 2\nenv: {env}\n"
    lines = explained(tmp_path, text)
    only = group(lines, "workers")
    assert "OMP_NUM_THREADS=4  # env, not the framework's default" in only
    assert "NODE_RANK=0  # set by Muster, not env" in only
    (address,) = (line for line in only if line.startswith("MASTER_ADDR="))
    assert address.endswith("  # set by the framework, not env")
    assert "note: group workers: MASTER_ADDR, NODE_RANK are set by Muster, not by the job" in lines


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({}, "a node without contact is not replaced, since it may still run"),
        (
            {"isolation_timeout": "10m"},
            "a machine ends its node after 10m without contact; then it is replaced",
        ),
    ],
)
def test_what_an_engine_does_without_contact_is_said(
    setting: dict[str, str], text: str, tmp_path: Path, own_home: Path
) -> None:
    write_profile(own_home, "lab", {"hosts": ["gpu1", "gpu2"], **setting})
    lines = explained(tmp_path, "engine: lab\ncommand: [hostname]\nnodes: 2\n")
    assert lines[lines.index("engine: lab") + 1] == f"  {text}"
