"""`muster top`, and what `runs show` says of ended runs."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from muster.api.usage import Counters
from muster.cli.top import Row, _cells, _row, _sort_key
from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from support.command import MUSTER, json_of, muster, output_of
from support.faults import until
from support.remote_engine import CUT
from support.runs import until_ready
from support.terminals import Terminal

BURN = "import time\nwhile time.process_time() < {}: pass\n"

#: Has 60 MiB and uses a part of a CPU, as long as it runs.
BUSY = """
import time
data = b"x" * (60 << 20)
while True:
    sum(range(200_000))
    time.sleep(0.02)
"""


def start(client: Client, engine: str, nodes: int, program: str) -> JobRun:
    job, new = client.job(None, command=["python3", "-c", program], name="demo")
    return client.start(
        client.prepare_run(job, overrides_from({"nodes": nodes, "engine": engine}), new_job=new)
    )


def test_a_snapshot_of_runs_and_of_nodes(client: Client, engine: str) -> None:
    run = start(client, engine, 2, BUSY)
    until_ready(run)
    nodes: list[dict[str, Any]] = json_of("top", run.name, "--json")
    assert [(node["rank"], node["group"]) for node in nodes] == [(0, "workers"), (1, "workers")]
    assert all(node["cpus"] > 0 and node["received"] is None for node in nodes)
    (total,) = json_of("top", "--json", "-d", "0.2")
    assert (total["run"], total["nodes"], total["processes"]) == (run.name, 2, 2)
    lines = output_of("top", run.name, "--once", "--sort", "memory").splitlines()
    assert lines[0].split()[:5] == ["RANK", "GROUP", "PROCS", "CPUS", "MEMORY"]
    assert len(lines) == 3


def test_nodes_that_cannot_be_reached_are_named(
    client: Client, servers: str, own_home: Path
) -> None:
    run = start(client, servers, 2, BUSY)
    until_ready(run)
    (own_home / CUT).touch()
    os.kill(bridge_to_node_1(run), signal.SIGKILL)

    def is_lost() -> bool:
        return json_of("status", run.name, "--json")["nodes"][1]["unreachable_since"] is not None

    until(is_lost, "contact is lost")
    shown = muster("top", run.name, "--once")
    assert [line.split()[:2] for line in shown.stdout.splitlines()[1:]] == [["0", "workers"]]
    assert shown.stderr == "node 1 is not shown: it cannot be reached\n"
    (own_home / CUT).unlink()


def bridge_to_node_1(run: JobRun) -> int:
    """The process that carries what the supervisor and the server of node 1 say."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"open" in words and words[-2].endswith(f"{run.id}/hosts/1".encode()):
                return int(folder.name)
    raise AssertionError("there is none")


def test_on_a_terminal_it_is_drawn_again_until_q(client: Client, engine: str) -> None:
    run = start(client, engine, 1, "import time; time.sleep(1000)")
    until_ready(run)
    with Terminal([*MUSTER, "top", run.name, "--interval", "0.2"]) as terminal:
        for _ in range(3):
            terminal.wait_for("\x1b[H\x1b[J")
        terminal.wait_for("workers")
        terminal.type("q")
        terminal.wait_for("\x1b[?1049l")  # the terminal is as before
        assert terminal.end() == 0


def test_on_a_terminal_it_ends_with_its_run(client: Client, engine: str) -> None:
    run = start(client, engine, 1, "import time; time.sleep(1000)")
    until_ready(run)
    with Terminal([*MUSTER, "top", run.name, "--interval", "0.2"]) as terminal:
        terminal.wait_for("workers")
        run.cancel().wait(60)
        assert terminal.end() == 0
    how = f"{run.name} has ended: CANCELED; `muster status {run.name}` shows"
    assert how in terminal.output.partition("\x1b[?1049l")[2]


def test_a_dumb_terminal_gets_one_table(client: Client, engine: str) -> None:
    run = start(client, engine, 1, "import time; time.sleep(1000)")
    until_ready(run)
    environ = {**os.environ, "TERM": "dumb"}
    with Terminal([*MUSTER, "top", run.name], env=environ) as terminal:
        assert terminal.end() == 0
    assert "workers" in terminal.output
    assert "\x1b" not in terminal.output


def test_nothing_runs(client: Client, engine: str) -> None:
    nothing = muster("top", code=0)
    assert (nothing.stdout, nothing.stderr) == ("", "no runs are in progress\n")
    assert json_of("top", "--json") == []
    run = start(client, engine, 1, "pass").wait(60)
    assert f"{run.name} has no processes: it is SUCCEEDED" in muster("top", run.name, code=2).stderr


def test_the_usage_of_a_run_is_recorded(client: Client) -> None:
    run = start(client, "local", 2, f"{BURN.format(1)}import time; time.sleep(1)").wait(60)
    used = run.usage
    assert sorted(used) == [0, 1]
    for node in used.values():
        assert 1 <= node.cpu_seconds < 1.3
        assert node.cpu_average == pytest.approx(node.cpu_seconds / node.seconds)
        assert (node.memory_peak or 0) > 1 << 20
    shown = output_of("runs", "show", run.name)
    assert "RANK  CPUS  CPUS MAX  MEMORY" in shown
    recorded = json_of("runs", "show", run.name, "--json")["usage"]
    assert [(one["rank"], one["cpu_seconds"]) for one in recorded] == [
        (rank, node.cpu_seconds) for rank, node in sorted(used.items())
    ]


def test_a_row_of_several_nodes_adds_up_what_is_known() -> None:
    before = {("r", 0): Counters(3.0, 5, 100, 0, None, None, 1)}
    nodes = [
        (("r", 0), Counters(4.0, 10, 300, 0, None, None, 1)),
        (("r", 1), Counters(1.0, 20, 0, 0, 8, 0, 2, gpus=0.5, gpu_memory=7)),  # is new
        (("r", 2), Counters(None, 30, None, None, None, None, None, cpus=0.75)),
        (("r", 3), Counters(None, None, None, None, None, None, None)),
    ]
    assert _row("r-1", "4", nodes, before, 2.0) == Row(
        "r-1", "4", 3, 1.25, 60, 100.0, 0.0, None, None, 0.5, 7
    )
    assert _row("3", "w", nodes[3:], before, 2.0) == Row("3", "w", *[None] * 7)
    restarted = [(("r", 0), Counters(0.5, 10, 0, 0, None, None, 1))]
    assert _row("0", "w", restarted, before, 2.0).cpu == 0.0


def test_what_the_sample_before_lacks_has_no_rate() -> None:
    """Such as that of a node that could not be reached: its counters have grown for long."""
    now = Counters(5000.0, 1 << 30, 10**12, 10**9, 10**9, 10**9, 3)
    expected = Row("0", "w", 3, None, 1 << 30, None, None, None, None)
    assert _row("0", "w", [(("r", 0), now)], {}, 2.0) == expected
    unknown = Counters(None, None, None, None, None, None, None)
    assert _row("0", "w", [(("r", 0), now)], {("r", 0): unknown}, 2.0) == expected


def test_cells_and_sorting() -> None:
    row = Row("0", "workers", 3, 1.256, 3 << 20, 1024.0, 0.0, None, None)
    assert _cells(row, gpus=False) == ("0", "workers", "3", "1.26", "3MiB", "1KiB", "0B", "-", "-")
    with_gpus = row._replace(gpus=1.5, gpu_memory=2 << 30)
    assert _cells(with_gpus, gpus=True)[4:8] == ("3MiB", "1.50", "2GiB", "1KiB")
    assert _cells(row, gpus=True)[5:7] == ("-", "-")
    unknown = Row("1", "workers", None, None, None, None, None, None, None)
    assert _cells(unknown, gpus=True) == ("1", "workers", *"---------")
    assert _sort_key(unknown, "cpu") < _sort_key(row._replace(cpu=0.0), "cpu")
    keys = [_sort_key(row, name) for name in ("cpu", "memory", "read", "write", "in", "out")]
    assert keys == [1.256, 3 << 20, 1024.0, 0.0, -1.0, -1.0]
