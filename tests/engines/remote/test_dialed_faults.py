"""Faults of networks, clocks and secrets where nodes dial their supervisor over TLS, on machines in
network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster.engines.remote.run_secrets import contact_secrets
from muster.storage.home import RunDir
from support.dialed_engine import Infrastructure
from support.faults import until
from support.lab import Counting, Lab, Machine, laboratory, needs_lab

pytestmark = needs_lab


@pytest.fixture
def lab(tmp_path: Path, servers: str) -> Iterator[Lab]:
    """A lab on whose machines nodes start that dial the laptop."""
    folder = tmp_path / "lab"
    folder.mkdir()
    with laboratory(folder, 2) as made:
        infrastructure(made).write(made.home)
        yield made


def infrastructure(lab: Lab, *wrappers: list[str]) -> Infrastructure:
    """The machines of a lab. wrappers: for each machine what its node servers run under."""
    prefixes = [
        [*machine.inside(), *(wrappers[number] if wrappers else ())]
        for number, machine in enumerate(lab.machines)
    ]
    names = [machine.name for machine in lab.machines]
    return Infrastructure(lab.laptop.address, list(zip(prefixes, names, strict=True)))


def counting(lab: Lab, *, can_start: bool = True) -> Counting:
    return Counting(lab, engine="dialed", can_start=can_start)


@pytest.mark.slow
@pytest.mark.subject("partition", kind="dialed")
def test_a_link_that_is_cut_and_connected_again(lab: Lab) -> None:
    run = counting(lab)
    first, _ = lab.machines
    first.cut()
    run.until_unreachable(0)
    first.join()
    run.until_unreachable()
    run.wait_for_lines()
    run.end()


@pytest.mark.subject("partition", kind="dialed")
@pytest.mark.slow
def test_links_that_work_in_one_direction(lab: Lab) -> None:
    run = counting(lab)
    first, second = lab.machines
    first.mute()
    second.deafen()
    run.until_unreachable(0, 1)
    first.unmute()
    second.unmute()
    run.until_unreachable()
    run.wait_for_lines()
    run.end()


@pytest.mark.subject("slow node", kind="dialed")
@pytest.mark.slow
def test_a_slow_and_lossy_network(lab: Lab) -> None:
    first, second = lab.machines
    first.slow_down("1mbit")
    second.lose(5)
    name = lab.start("seq 1 50000", 2, engine="dialed")
    code, out, err = lab.muster("wait", name)
    assert code == 0, out + err
    (folder,) = (lab.home / "runs").iterdir()
    for rank in range(2):
        text = (folder / f"logs/0/workers-{rank}.out").read_text()
        assert text == "".join(f"{number}\n" for number in range(1, 50001))


#: Takes a port, accepts connections, and says nothing.
LISTEN = (
    "import socket, sys; socket.create_server((sys.argv[1], int(sys.argv[2]))); sys.stdin.read()"
)


@pytest.mark.subject("attach after a kill", kind="dialed")
def test_a_supervisor_that_is_killed_and_replaced_on_another_port(lab: Lab) -> None:
    run = counting(lab)
    address = run.folder / "contact" / "address"
    before = address.read_text()
    (supervisor,) = lab.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not lab.supervisors(), "it has ended")
    stranger = lab.laptop.inside(sys.executable, "-c", LISTEN, *before.strip().split(":"))
    with subprocess.Popen(stranger, stdin=subprocess.PIPE):
        run.status()  # any command has another one started
        run.until_unreachable()
        run.wait_for_lines()
        assert address.read_text() != before
        run.end()
    assert len(run.events("supervisor_replaced")) == 1


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("faketime"), reason="faketime is not installed")
def test_clocks_that_are_an_hour_off(lab: Lab) -> None:
    """The supervisor's certificate is new, so for the second it is not valid yet."""
    infrastructure(lab, ["faketime", "-f", "+1h"], ["faketime", "-f", "-1h"]).write(lab.home)
    begun = datetime.now(UTC).isoformat()
    run = counting(lab)
    run.end()
    for node in run.status()["nodes"]:
        times = [begun, node["started_at"], node["finished_at"], datetime.now(UTC).isoformat()]
        assert times == sorted(times)


def _of_another_run(lab: Lab) -> str:
    """The authority of a run with the same name, but other secrets."""
    folder = lab.folder / "other"
    folder.mkdir()
    return contact_secrets(RunDir(folder)).authority


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda lab, there: setattr(there, "token", "0" * 64), "its token is not that of node"),
        (
            lambda lab, there: setattr(there, "authority", _of_another_run(lab)),
            "TLS: unable to get local issuer certificate",
        ),
    ],
    ids=["the token", "the certificate"],
)
def test_nodes_with_secrets_of_another_run(
    lab: Lab, change: Callable[[Lab, Infrastructure], None], why: str
) -> None:
    """Nothing of the run reaches them. It continues when the right ones are started."""
    wrong = infrastructure(lab)
    change(lab, wrong)
    wrong.write(lab.home)
    run = counting(lab, can_start=False)
    logs = [run.folder / "hosts" / f"{rank}.log" for rank in range(2)]
    until(lambda: all(one.exists() and why in one.read_text() for one in logs), "they are refused")
    assert run.status()["state"] == "ACCEPTED"
    assert not any((run.folder / "hosts" / str(rank) / "node").exists() for rank in range(2))
    infrastructure(lab).write(lab.home)
    for machine in lab.machines:
        kill_servers(machine)
    run.begin()
    run.end()


def kill_servers(machine: Machine) -> None:
    """Kill the node servers of a machine."""
    for pid in machine.pids():
        if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.kill(pid, signal.SIGKILL)
