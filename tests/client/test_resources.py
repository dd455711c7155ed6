"""Programs that use the API leave no descriptor, process or warning behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.client import Client
from muster.control import launcher
from muster.control.launcher import Launcher
from muster.node.processes import children

#: What programs and notebooks do without closing anything.
PATTERNS = {
    "nothing closed": """
run = muster.run(command=["sh", "-c", "echo 1; sleep 0.1; echo 2"])
for _ in run.logs(follow=True, streams=["stdout"]): break
for _ in run.events(follow=True): break
unfinished = run.logs(follow=True); next(unfinished)
run.wait(60)
client = Client()
client.start(client.prepare(None, Changes(), command=["true"]))
del client; gc.collect()
""",
    "fork": """
muster.run(command=["true"]).wait(60)
child = os.fork()  # both start runs at the same time
for _ in range(3):
    assert muster.run(command=["true"]).wait(60).state == "SUCCEEDED"
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert len(muster.runs()) == 7
""",
}
PROLOGUE = """
import gc, os, muster
from muster.client.client import Client
from muster.spec.overrides import Changes
"""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_program_that_closes_nothing_ends_without_warnings(pattern: str) -> None:
    argv = [sys.executable, "-X", "dev", "-W", "error", "-c", PROLOGUE + PATTERNS[pattern]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def awaited_launchers(own_launcher: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers of the test have ended when they are closed, however long that takes."""
    monkeypatch.setattr(launcher, "_EXIT_TIMEOUT", 60.0)


@pytest.mark.embedded("clients of this machine")
@pytest.mark.usefixtures("awaited_launchers")
def test_closed_clients_leave_no_process_and_no_descriptor(own_home: Path) -> None:
    def start() -> Client:
        client = Client(own_home)
        job, new = client.job(None, command=["true"])
        client.start(client.prepare_run(job, new_job=new)).wait(60)
        return client

    with start() as client:
        pass
    files, processes = len(os.listdir("/dev/fd")), {*children(os.getpid())}
    for _ in range(2):
        start().close()
    assert len(os.listdir("/dev/fd")) <= files
    assert {*children(os.getpid())} <= processes, "those of other tests may have ended meanwhile"
    assert len(client.runs()) == 3, "a closed client can be used again"
    client.close()


@pytest.mark.embedded("the server, in this process, starts a launcher too")
@pytest.mark.usefixtures("awaited_launchers")
def test_a_launcher_whose_client_was_dropped_is_reaped_with_the_next(own_home: Path) -> None:
    dropped = Launcher.spawn()
    pid = dropped._pid
    del dropped
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    last = Launcher.spawn()
    assert pid not in children(os.getpid()), "the first was reaped"
    assert last._pid in children(os.getpid())
    last.close()
    last.close()
    assert last._pid not in children(os.getpid())
