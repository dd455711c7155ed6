"""`muster stacks`, with a program in place of py-spy, and with py-spy where it is installed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from support.command import json_of, muster, output_of
from support.runs import until_ready

#: Says that each process waits, and fails for those whose command contains `unreadable`.
FAKE = f"""#!{sys.executable}
import json, sys
pid = sys.argv[sys.argv.index("--pid") + 1]
if b"unreadable" in open(f"/proc/{{pid}}/cmdline", "rb").read():
    sys.exit("Error: Permission denied")
frame = {{"name": "wait", "filename": "/x/train.py", "short_filename": "train.py", "line": 3}}
threads = ("MainThread", "feeder")
print(json.dumps([{{"thread_name": t, "thread_id": 1, "frames": [frame]}} for t in threads]))
"""

#: It waits in the line that says so.
PROGRAM = """
import os, sys, time

def wait_for_data():
    print("up", flush=True); time.sleep(1000)

def wait_for_others():
    print("up", flush=True); time.sleep(1000)

wait_for_data() if os.environ["NODE_RANK"] == "1" else wait_for_others()
"""


def start(client: Client, engine: str, nodes: int, command: list[str]) -> JobRun:
    job, new = client.job(None, command=command, name="demo")
    run = client.start(
        client.prepare_run(job, overrides_from({"nodes": nodes, "engine": engine}), new_job=new)
    )
    until_ready(run)
    return run


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Python that has a program named py-spy beside it, which is found before the real one."""
    program = tmp_path / "py-spy"
    program.write_text(FAKE)
    program.chmod(0o755)
    which = f"import shutil; shutil.which = lambda *_, **__: {str(program)!r}"
    (tmp_path / "sitecustomize.py").write_text(which)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "python3").symlink_to(sys.executable)
    return str(tmp_path / "python3")


@pytest.mark.embedded("a program on a server does not get the PYTHONPATH of the test")
def test_main_threads_are_shown_and_others_counted(
    client: Client, engine: str, python: str
) -> None:
    run = start(client, engine, 3, [python, "-c", "import time; time.sleep(1000)"])
    shown = muster("stacks", run.name, code=0)
    assert shown.stdout == "ranks 0-2:\n    wait (train.py:3)\n"
    assert shown.stderr == "3 more threads: --threads shows them\n"
    assert "\n\nranks 1-2, thread feeder:\n" in output_of(
        "stacks", run.name, "--threads", "--rank", "1-2"
    )
    data: list[dict[str, Any]] = json_of("stacks", run.name, "--rank", "0", "--json")
    assert data[0]["frames"] == [{"function": "wait", "file": "train.py", "line": 3}]
    assert f"{run.name} has no rank 3" in muster("stacks", run.name, "--rank", "3", code=2).stderr


@pytest.mark.embedded("a program on a server does not get the PYTHONPATH of the test")
def test_a_process_that_cannot_be_read_is_named(client: Client, engine: str, python: str) -> None:
    program = "import time; time.sleep(1000)"
    run = start(client, engine, 1, [python, "-c", program, "unreadable"])
    failed = muster("stacks", run.name, code=4)
    assert failed.stdout == ""
    assert failed.stderr.startswith("warning: rank 0: process ")
    assert "Error: Permission denied" in failed.stderr


def test_a_host_without_py_spy_is_named(client: Client, tmp_path: Path, servers: str) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    program = [str(tmp_path / "python3"), "-c", "import time; time.sleep(1000)"]
    job, new = client.job(None, command=program, name="demo", env={"PATH": str(tmp_path)})
    overrides = overrides_from({"nodes": 2, "engine": servers})
    run = client.start(client.prepare_run(job, overrides, new_job=new))
    until_ready(run)
    failed = muster("stacks", run.name, code=4)
    why = "py-spy, which reads the stacks, is not installed there"
    assert failed.stdout == ""
    assert [line.rpartition(": ")[2] for line in failed.stderr.splitlines()] == [why] * 2


def test_a_run_without_python(client: Client, engine: str, tmp_path: Path) -> None:
    run = start(client, engine, 1, ["sleep", "1000"])
    assert muster("stacks", run.name).stderr == f"no Python process runs in {run.name}\n"


@pytest.mark.skipif(shutil.which("py-spy") is None, reason="py-spy is not installed")
def test_the_rank_that_differs_stands_alone(client: Client, engine: str) -> None:
    run = start(client, engine, 3, [sys.executable, "-c", PROGRAM])
    missing = {0, 1, 2}
    for record in run.logs(follow=True, streams=["stdout"]):
        missing.discard(record.rank)
        if not missing:
            break
    shown = output_of("stacks", run.name)
    assert "ranks 0,2:\n    <module> (<string>:10)\n    wait_for_others (<string>:8)\n" in shown
    assert "rank 1:\n    <module> (<string>:10)\n    wait_for_data (<string>:5)\n" in shown
