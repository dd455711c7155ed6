"""What a host has to pass before its node's program starts."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.node import host_checks
from muster.node.host_checks import Neighbors, gpu_problem, main
from support.agents import Node


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs; there are 8 GPUs."""
    monkeypatch.setattr(host_checks, "gpu_numbers", lambda: [*range(8)])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    return tmp_path


def write_smi(folder: Path, script: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_host_without_gpus_is_enough_for_a_node_without(gpus: Path) -> None:
    write_smi(gpus, "exit 9")
    assert gpu_problem(0) == ""


def test_gpus_that_are_missing_are_counted(gpus: Path) -> None:
    assert gpu_problem(8) == ""
    assert gpu_problem(9) == "8 of 9 GPUs are visible"


def test_gpus_have_to_answer(gpus: Path) -> None:
    write_smi(gpus, "echo 'GPU 0: H100'")
    assert gpu_problem(8) == ""
    write_smi(gpus, "echo 'GPU 0: H100'; echo 'GPU 1 is lost' >&2; exit 15")
    assert gpu_problem(8) == "nvidia-smi: GPU 1 is lost"


def test_nvidia_smi_that_does_not_answer(gpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_SMI_TIMEOUT", 0.05)
    write_smi(gpus, "exec sleep 10")
    assert gpu_problem(8) == "nvidia-smi does not answer"


#: Of this pytest process only: nobody else takes a port of it that was given back.
HOST = f"127.{1 + os.getpid() % 250}.8.1"


def ring(least: float, count: int = 2) -> list[dict[str, Any]]:
    """The checks of nodes that measure the bandwidth between them."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((HOST, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return [
        {
            "bandwidth": least,
            "own": [HOST, ports[rank]],
            "next": [HOST, ports[(rank + 1) % count]],
            "names": [f"node-{(rank - 1) % count}", f"node-{(rank + 1) % count}"],
            "alone": False,
        }
        for rank in range(count)
    ]


def measured(checks: list[dict[str, Any]]) -> list[str]:
    """What each node finds, at the same time."""
    found = [""] * len(checks)

    def one(rank: int) -> None:
        found[rank] = Neighbors(checks[rank]).problem()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(checks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_SEND_TIME", 0.02)


@pytest.mark.usefixtures("briefly")
def test_a_network_that_is_fast_enough() -> None:
    assert measured(ring(1.0, 3)) == ["", "", ""]


@pytest.mark.usefixtures("briefly")
def test_a_network_that_is_too_slow_is_named_with_both_ways() -> None:
    first, second = measured(ring(1e15))
    assert first.startswith("the bandwidth is ") and first.endswith("less than 9.31e+05 GiB/s")
    assert "/s from node-1 and " in first and "/s to node-1: " in first
    assert "/s from node-0 and " in second


@pytest.mark.usefixtures("briefly")
def test_one_slow_way_is_the_neighbors_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Neighbors(ring(1000.0)[0])
    checks._note("from node-1", 10.0)
    checks._note("to node-1", 5000.0)
    monkeypatch.setattr(host_checks, "_NEIGHBOR_TIMEOUT", 0.0)
    assert checks.problem() == ""


def test_a_neighbor_that_takes_no_part_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_NEIGHBOR_TIMEOUT", 0.2)
    assert measured(ring(1e15)[:1]) == [""]


def test_a_node_that_is_alone_measures_nothing() -> None:
    assert main([json.dumps({"bandwidth": 1e15, "alone": True})]) == 0


def test_what_else_connects_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_NEIGHBOR_TIMEOUT", 1.0)
    checks = ring(1e15)[0]
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(Neighbors(checks).problem()))
    thread.start()
    while True:
        try:
            with socket.create_connection(tuple(checks["own"]), 1.0) as scan:
                scan.sendall(b"GET / HTTP/1.1\r\n\r\n")
            break
        except ConnectionRefusedError:
            assert thread.is_alive()
    thread.join()
    assert found == [""]


def test_a_command_of_the_job(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([json.dumps({"command": ["true"]})]) == 0
    assert main([json.dumps({"command": ["sh", "-c", "exit 3"]})]) == 1
    assert capfd.readouterr().err == "sh has failed with exit code 3\n"
    # what it says is enough
    assert main([json.dumps({"command": ["sh", "-c", "echo broken >&2; exit 3"]})]) == 1
    assert capfd.readouterr().err == "broken\n"
    assert main([json.dumps({"command": ["no-such-program"]})]) == 1
    assert capfd.readouterr().err == "no-such-program: No such file or directory\n"


# --- in an agent


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Any]:
    made: list[Node] = []

    def make(script: str, check: str, timeout: float = 60.0, **launch: Any) -> Node:
        preflight = {"command": ["sh", "-c", check], "timeout": timeout}
        made.append(Node(tmp_path, "sh", "-c", script, preflight=preflight, **launch))
        return made[-1]

    yield make
    for one in made:
        one.channel.close()
        one.process.wait(30)


def test_a_program_starts_when_its_host_has_passed(node: Any, tmp_path: Path) -> None:
    one = node("cat checked", "until test -e go; do sleep 0.01; done; echo yes > checked")
    (tmp_path / "go").touch()
    assert one.ended()["exit_code"] == 0
    assert one.output() == "yes\n"


def test_no_program_starts_on_a_host_that_does_not_pass(node: Any, tmp_path: Path) -> None:
    one = node("touch ran", "echo 7 of 8 GPUs are visible >&2; exit 1")
    ended = one.expect("ended")
    assert (ended["exit_code"], ended["reason"]) == (None, "preflight")
    assert ended["message"] == "7 of 8 GPUs are visible"
    assert not (tmp_path / "ran").exists()


def test_checks_that_do_not_end(node: Any) -> None:
    ended = node("true", "exec sleep 1000", timeout=0.05).expect("ended")
    assert ended["reason"] == "preflight"
    assert ended["message"] == "its checks have not ended after 0.05 s"


def test_checks_that_cannot_be_started(tmp_path: Path) -> None:
    preflight = {"command": ["no-such-program"], "timeout": 60.0}
    one = Node(tmp_path, "true", preflight=preflight)
    ended = one.expect("ended")
    assert ended["reason"] == "preflight"
    assert "no-such-program: command not found" in ended["message"]
    one.channel.close()
    one.process.wait(30)


def test_a_node_that_is_stopped_while_it_is_checked(node: Any) -> None:
    one = node("true", "exec sleep 1000")
    one.send("stop")
    assert one.expect("ended")["signal"] == 15


def test_each_start_is_checked(node: Any, tmp_path: Path) -> None:
    one = node("exit 1", "test ! -e bad", keep=True)
    assert one.ended()["reason"] == "exit"
    (tmp_path / "bad").touch()
    one.restart(1)
    assert one.expect("ended", 1)["reason"] == "preflight"
