"""Nodes that bootstrap a cluster, each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Addresses of this pytest process only: tests in parallel use the same ports.
NET = f"127.{1 + os.getpid() % 250}.9"

PROGRAM = """
import os, sys
print("rank", os.environ["NODE_RANK"], "of", os.environ["INITIAL_CLUSTER_SIZE"], *sys.argv[1:])
print("job", os.environ["JOB_OCID"])
sys.exit(int(os.environ.get("EXIT_" + os.environ["NODE_RANK"], "0")))
"""


#: A node whose time to wait for others begins when there is a file that matches FIRST.
PATIENT = """
import os, runpy, sys, time
from pathlib import Path
from muster.bootstrap import rendezvous
poll, folder = rendezvous.poll, Path(os.environ["WORK_DIR"], os.environ["JOB_OCID"])
def patient(timeout, interval):
    while not any(folder.glob(os.environ["FIRST"])):
        yield
        time.sleep(interval)
    yield from poll(timeout, interval)
rendezvous.poll = patient
runpy.run_module("muster", run_name="__main__")
"""


class Nodes:
    """The nodes of one test; `work_dir` is a path or URL."""

    def __init__(self, folder: Path, work_dir: str, environ: dict[str, str]) -> None:
        self._folder, self._started = folder, 0
        (folder / "program.py").write_text(PROGRAM)
        self.work_dir = work_dir
        self._environ = {
            **os.environ,
            **environ,
            "WORK_DIR": work_dir,
            "CLUSTER_TYPE": "GENERIC",
            "ENTRY_POINT": str(folder / "program.py"),
            "TIMEOUT": "120",
        }
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, mode: str, job: str = "job1", output: Any = subprocess.PIPE, **environ: str
    ) -> subprocess.Popen[str]:
        """Start a node. environ: more variables; with FIRST, see `PATIENT`."""
        self._started += 1
        program = ["-c", PATIENT] if "FIRST" in environ else ["-m", "muster"]
        address = f"{NET}.{self._started}"
        process = subprocess.Popen(
            [sys.executable, *program, "node"],
            env={
                **self._environ,
                "MODE": mode,
                "JOB_OCID": job,
                "MUSTER_NODE_ADDRESS": address,
                **environ,
            },
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a process: its exit code, standard output and standard error."""
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def until(process: subprocess.Popen[str], text: str) -> None:
    """Read the standard error of a node until a line contains the text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"the node ended without printing {text!r}")


NodesOf = Callable[..., Nodes]
