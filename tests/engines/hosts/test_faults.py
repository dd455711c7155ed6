"""Faults of machines and networks, with a real sshd on machines in network namespaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from muster.node import greeting
from support.faults import agent_of, until
from support.lab import Counting, Lab, laboratory, needs_lab, wait
from support.ssh_hosts import make_key

pytestmark = needs_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path, 2) as made:
        yield made


@pytest.mark.subject("partition", kind="hosts")
def test_a_link_that_is_cut_and_connected_again(lab: Lab) -> None:
    run = Counting(lab)
    first, _ = lab.machines
    first.cut()
    run.until_unreachable(0)
    first.join()
    run.until_unreachable()
    run.wait_for_lines()
    run.end()


@pytest.mark.subject("partition", kind="hosts")
@pytest.mark.slow
def test_a_machine_that_can_be_heard_no_more(lab: Lab) -> None:
    run = Counting(lab)
    for machine in lab.machines:
        machine.mute()
    run.until_unreachable(0, 1)
    for machine in lab.machines:
        machine.unmute()
    run.until_unreachable()
    run.end()


@pytest.mark.subject("slow node", kind="hosts")
@pytest.mark.slow
def test_a_slow_and_lossy_network(lab: Lab) -> None:
    first, second = lab.machines
    first.slow_down("1mbit")
    second.lose(5)
    name = lab.start("seq 1 50000", 2)
    assert lab.muster("wait", name)[0] == 0
    _, out, _ = lab.muster("status", name, "--json")
    logs = lab.home / "runs" / json.loads(out)["id"] / "logs" / "0"
    for rank in range(2):
        assert (logs / f"workers-{rank}.out").read_text() == "".join(
            f"{number}\n" for number in range(1, 50001)
        )


@pytest.mark.subject("slow node", kind="hosts")
@pytest.mark.slow
def test_a_machine_that_is_frozen(lab: Lab) -> None:
    run = Counting(lab)
    lab.machines[0].freeze()
    run.until_unreachable(0)
    lab.machines[0].thaw()
    run.until_unreachable()
    run.end()


def test_an_sshd_that_is_killed(lab: Lab) -> None:
    run = Counting(lab)
    lab.machines[0].kill_sshd()
    run.until_unreachable(0)
    lab.machines[0].start_sshd()
    run.until_unreachable()
    run.end()


@pytest.mark.subject("attach after a kill", kind="hosts")
def test_a_supervisor_that_is_killed(lab: Lab) -> None:
    run = Counting(lab)
    for _ in range(2):
        (supervisor,) = lab.supervisors()
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not lab.supervisors(), "it has ended")
        run.status()  # any command has another one started
        run.until_unreachable()
        run.wait_for_lines()
    assert len(run.events("supervisor_replaced")) == 2
    run.end()


def other_version(folder: Path) -> Path:
    """A folder with Muster as if it were of a version that speaks another protocol."""
    package = Path(greeting.__file__).parents[1]
    shutil.copytree(package, folder / "muster", ignore=shutil.ignore_patterns("__pycache__"))
    module = folder / "muster" / "node" / "greeting.py"
    text, count = re.subn(r"(?m)^PROTOCOL = \d+$", "PROTOCOL = 99", module.read_text())
    assert count == 1
    module.write_text(text)
    return folder


@pytest.mark.slow
def test_a_supervisor_of_another_version(lab: Lab) -> None:
    run = Counting(lab)
    (supervisor,) = lab.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not lab.supervisors(), "it has ended")
    assert lab.muster("status", run.name, path=other_version(lab.folder / "other"))[0] == 0
    refused = r"has Muster \S+ \(protocol \d\), the supervisor on .* \(protocol 99\): use the same"
    until(lambda: re.search(refused, str(run.status()["nodes"])), "it is refused", pause=0.2)
    (supervisor,) = lab.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not lab.supervisors(), "it has ended")
    run.status()
    run.until_unreachable()
    run.end()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("faketime"), reason="faketime is not installed")
def test_a_clock_that_is_an_hour_ahead(lab: Lab) -> None:
    python = lab.folder / "python"
    python.write_text(f'#!/bin/sh\nexec faketime -f +1h {sys.executable} "$@"\n')
    python.chmod(0o755)
    lab.add_engine(python=str(python))
    code, out, _ = lab.muster("engines", "check", "hosts")
    ahead = re.findall(r"clock (3600|3599)\.\d s ahead", out)  # it is measured over a network
    assert (code, len(ahead)) == (1, 2), out
    assert "set its clock, as with NTP" in out
    run = Counting(lab)
    run.wait_for_lines()
    run.end()
    for node in run.status()["nodes"]:
        assert node["started_at"] < node["finished_at"] < datetime.now(UTC).isoformat()


@pytest.mark.slow
def test_a_laptop_that_sleeps(lab: Lab) -> None:
    run = Counting(lab)
    lab.laptop.freeze()
    wait(60)
    lab.laptop.thaw()
    run.until_unreachable()
    run.wait_for_lines()
    run.end()


def test_an_agent_that_is_killed(lab: Lab) -> None:
    run = Counting(lab, "--max-restarts", "1")
    os.kill(agent_of(run.folder.name, 1), signal.SIGKILL)
    until(lambda: run.events("restart"), "it restarts", pause=0.2)
    (failure,) = run.events("failure")
    assert failure["rank"] == 1
    run.flag.touch()
    run.until_state("SUCCEEDED")


def fails(lab: Lab, *words: str) -> str:
    """Why a run fails that cannot start."""
    code, _, err = lab.muster("run", "--engine", "hosts", *words, "--", "true")
    assert code == 1, err
    return err


def test_a_machine_without_python(lab: Lab) -> None:
    lab.add_engine(python="python3.99")
    assert "it cannot run python3.99: install Python 3.9 or newer there" in fails(lab)


def test_a_key_that_the_machine_refuses(lab: Lab) -> None:
    os.unlink(lab.folder / "user_key")
    os.unlink(lab.folder / "user_key.pub")
    make_key(lab.folder / "user_key")
    (lab.folder / "user_key.pub").rename(lab.folder / "other.pub")
    text = fails(lab)
    assert re.search(r"10.97.0.1: it refuses the key \(.*Permission denied", text), text


def test_a_host_key_that_has_changed(lab: Lab) -> None:
    known = lab.folder / "known_hosts"
    first, second = known.read_text().splitlines()
    known.write_text(f"{first.split()[0]} {' '.join(second.split()[1:])}\n{second}\n")
    text = fails(lab, "--nodes", "2")
    assert "10.97.0.1: its host key has changed, so it may be another machine" in text
    assert f"`ssh-keygen -f {known} -R '10.97.0.1'`" in text
    known.write_text("")
    text = fails(lab, "--nodes", "2")
    assert f"its host key is not known here: `ssh -F {lab.folder}/config 10.97.0.1` once" in text


def test_a_machine_that_does_not_answer(lab: Lab) -> None:
    for machine in lab.machines:
        machine.cut()
    text = fails(lab)
    assert "10.97.0.1: ssh: connect to host 10.97.0.1 port 22: " in text


@pytest.mark.subject("full disk", kind="hosts")
def test_a_full_disk(lab: Lab) -> None:
    for machine in lab.machines:
        machine.run("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(lab.nodes))
    code, out, err = lab.muster("run", "--engine", "hosts", "--", "seq", "1", "1000000")
    assert code == 1
    assert re.search(rf"the disk was full: {lab.nodes}/\S+ on 10.97.0.1", out + err)


def test_a_full_disk_of_the_supervisor(lab: Lab) -> None:
    """Nodes continue, and so does the run when there is room."""
    home, kept = lab.home, lab.folder / "kept"
    lab.laptop.run("cp", "-r", str(home), str(kept))
    lab.laptop.run("mount", "-t", "tmpfs", "-o", "size=6m", "none", str(home))
    lab.laptop.run("cp", "-r", f"{kept}/.", str(home))
    done = lab.folder / "done"
    lab.start(f"for n in $(seq 12); do head -c 1000000 /dev/zero; echo; done; touch {done}", 1)
    until(done.exists, "the program has ended")
    until(lambda: not lab.supervisors(), "its supervisor has given up")
    assert any(path.name != "code" for path in lab.machines[0].nodes.iterdir())
    lab.laptop.run("mount", "-o", "remount,size=60m", str(home))
    code, _, err = lab.muster("wait", "last")
    assert code == 0, err
    _, shown, _ = lab.muster("logs", "last")
    assert len(shown) > 12_000_000
