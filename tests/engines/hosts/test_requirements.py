"""Packages that jobs require, on machines over ssh."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from muster.node.processes import state_of
from support.command import json_of, muster, output_of
from support.faults import until
from support.ssh_hosts import add_engine, needs_sshd, shared_sshd
from support.wheels import slow_package, wheel

pytestmark = needs_sshd

CODE = "NAME = 'demo 1'\ndef main():\n    print('demo says hi')\n"
PROGRAM = """
import os, shutil, subprocess, sys
import demo
print(demo.NAME, sys.prefix == os.environ["VIRTUAL_ENV"])
print(subprocess.run(["demo"], capture_output=True, text=True, check=True).stdout.strip())
import msgspec  # packages of the machine's Python are importable, too
"""


@pytest.fixture(autouse=True)
def engine(own_home: Path) -> None:
    add_engine(own_home, shared_sshd(), slots=4)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job that needs the package demo."""
    wheel(tmp_path, "demo", "1.0", CODE)
    (tmp_path / "train.py").write_text(PROGRAM)
    return write_job(tmp_path, "./demo-1.0-py3-none-any.whl")


def write_job(folder: Path, requirement: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(
        f"name: needs\nartifact: train.py\nrequirements: ['{requirement}']\nnodes: 2\n"
        f"env: {{PIP_NO_INDEX: '1', PIP_CONFIG_FILE: {os.devnull}}}\n"
    )
    return path


def run(path: Path, *words: str) -> list[str]:
    """The lines that the nodes print."""
    output = output_of("run", "--engine", "hosts", *words, str(path))
    return [re.sub(r"^\S+ [|!] ", "", line) for line in output.splitlines()]


def environments(home: Path) -> list[str]:
    """The keys of those that are complete."""
    return sorted(path.parent.name for path in (home / "hosts/environments").glob("*/about"))


def test_requirements_are_installed_once_and_kept(own_home: Path, job: Path) -> None:
    """By the first of two nodes that share the machine; later runs find them."""
    lines = run(job)
    assert [line for line in lines if line.startswith("muster: installing")] == [
        "muster: installing 1 requirement with pip, once for this machine"
    ]
    assert (lines.count("demo 1 True"), lines.count("demo says hi")) == (2, 2)
    (key,) = environments(own_home)
    again = run(job)
    assert [line for line in again if "muster: install" in line] == []
    assert again.count("demo 1 True") == 2
    assert environments(own_home) == [key]


def test_one_that_was_not_used_for_long_is_removed(own_home: Path, job: Path) -> None:
    run(job)
    (old,) = environments(own_home)
    place = own_home / "hosts/environments"
    month_ago = time.time() - 32 * 86_400
    os.utime(place / old / "about", (month_ago, month_ago))
    wheel(job.parent, "demo", "2.0", CODE.replace("demo 1", "demo 2"))
    assert "demo 2 True" in run(write_job(job.parent, "./demo-2.0-py3-none-any.whl"))
    (new,) = environments(own_home)
    assert new != old
    assert not (place / old).exists()


def test_one_that_is_in_use_stays(own_home: Path, job: Path) -> None:
    (job.parent / "train.py").write_text(f"{PROGRAM}import time; time.sleep(1000)")
    muster("run", "--engine", "hosts", "--detach", str(job), code=0)
    until(lambda: json_of("status", "last", "--json")["state"] == "IN_PROGRESS", "it runs")
    (key,) = environments(own_home)
    os.utime(own_home / "hosts/environments" / key / "about", (0, 0))
    (job.parent / "train.py").write_text("")
    wheel(job.parent, "demo", "2.0", CODE)
    run(write_job(job.parent, "./demo-2.0-py3-none-any.whl"))
    assert key in environments(own_home)
    for one in json_of("ps", "--json"):
        muster("cancel", one["id"], code=0)
        muster("wait", one["id"])


def test_what_cannot_be_installed(own_home: Path, job: Path) -> None:
    """The run says why, without the password of an index, and nothing is kept."""
    index = "--extra-index-url https://ana:hunter2@127.0.0.1:9/simple"
    (job.parent / "requirements.txt").write_text(f"{index}\nno-such-package\n")
    path = write_job(job.parent, "requirements.txt")
    found = muster("run", "--engine", "hosts", str(path), code=1)
    text = found.stdout + found.stderr
    assert "the job's requirements cannot be installed: No matching distribution found" in text
    assert re.search(r"all of its output: \S+/environments/[0-9a-f]{16}\.log", text)
    kept = [path for path in (own_home / "hosts/environments").rglob("*") if path.is_file()]
    for read in (text, *(one.read_text() for one in kept)):
        assert "hunter2" not in read
    assert environments(own_home) == []


def slow(folder: Path) -> tuple[Path, Path]:
    """Files of a package whose build has started, and that lets it continue; the job needs it."""
    started, go = folder / "started", folder / "go"
    slow_package(folder, "slow", started, go)
    (folder / "train.py").write_text("import slow; print('done')")
    write_job(folder, "./slow")
    return started, go


def building(started: Path) -> int:
    """The pid of the build, which has started."""
    until(lambda: started.exists() and started.read_text().isdigit(), "the build has started")
    return int(started.read_text())


def test_a_run_can_be_canceled_while_packages_are_installed(own_home: Path, job: Path) -> None:
    started, _ = slow(job.parent)
    muster("run", "--engine", "hosts", "--detach", str(job), code=0)
    pid = building(started)
    # what pip prints can be followed
    until(lambda: "muster: installing 1 requirement" in output_of("logs", "last"), "it is shown")
    muster("cancel", "last", code=0)
    muster("wait", "last")
    assert json_of("status", "last", "--json")["state"] == "CANCELED"
    until(lambda: state_of(pid) in ("", "Z"), "the build has ended")
    assert environments(own_home) == []


def test_an_installation_that_was_killed_is_not_used(own_home: Path, job: Path) -> None:
    started, go = slow(job.parent)
    muster("run", "--engine", "hosts", "--detach", "--set", "nodes=1", str(job), code=0)
    pid = building(started)
    started.unlink()
    go.touch()
    os.killpg(os.getpgid(pid), signal.SIGKILL)
    muster("wait", "last")
    failed = json_of("status", "last", "--json")
    assert failed["state"] == "FAILED"
    assert environments(own_home) == []
    assert run(job).count("done") == 2
    assert len(environments(own_home)) == 1
