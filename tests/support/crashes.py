"""Runs whose supervisors are killed at chosen points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from muster.client.client import Client
from muster.lifecycle.replay import replay
from support import forked_programs

#: Where a supervisor dies: before and after each record and each effect; before a round of its
#: loop, in which it hears of what has happened, and sends what the effects have made ready; or
#: before and after it records that the run is at rest.
Places = Literal["steps", "rounds", "end"]

#: Has the supervisors that the program starts die at point N.
_DEADLY = """
import os, sys
from muster.client.client import Client
from muster.control.drive import DrivenRun
from muster.control.launcher import Launcher
from muster.control.ledger import StoreLedger
from muster.engines.loop import EventLoop

places, left, target = sys.argv[1], [int(sys.argv[2])], sys.argv[3]

def count_down():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)  # like SIGKILL, which the first process of a namespace cannot send to itself

def deadly(function, after):
    def call(*args):
        count_down()
        result = function(*args)
        if after:
            count_down()
        return result
    return call

if places == "steps":
    StoreLedger.record = deadly(StoreLedger.record, True)
    DrivenRun._carry_out = deadly(DrivenRun._carry_out, True)
elif places == "end":
    record, deadly_record = StoreLedger.record, deadly(StoreLedger.record, True)
    def record_step(ledger, step):
        return (deadly_record if step.after.state.at_rest else record)(ledger, step)
    StoreLedger.record = record_step
else:
    EventLoop.run_once = deadly(EventLoop.run_once, False)
client = Client(launcher=Launcher.fork())
"""
#: Starts a run of a job file. Prints its id.
_SUBMIT = """
job, new = client.job(target)
print(client.start(client.prepare_run(job, new_job=new)).id)
"""
#: Starts the next supervisor of a run that has none. Prints its id.
_RECOVER = "print(client.run(target).id)\n"


def submit(point: int, job: Path, places: Places = "steps") -> str:
    """Start a run of a job file whose supervisor dies at the point; return its id."""
    return _run(_SUBMIT, places, point, str(job))


def recover(point: int, run: str, places: Places = "steps") -> None:
    """Start the next supervisor of a run that has none; it dies at the point, or the command that
    starts it does."""
    _run(_RECOVER, places, point, run, codes=(0, KILLED))


#: The exit code of a process that has died at its point.
KILLED = 9


def _run(what: str, places: Places, point: int, target: str, codes: Sequence[int] = (0,)) -> str:
    done = forked_programs.run(["-c", _DEADLY + what, places, str(point), target])
    assert done.returncode in codes, (done.returncode, done.stderr)
    return done.stdout.strip()


def check_log(client: Client, run_id: str) -> None:
    """The state of the run can be rebuilt from its event log."""
    run = client.run(run_id)
    entries = list(run.events())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    replayed = replay((entry.kind, entry.data) for entry in entries)
    assert (replayed.state, replayed.details, replayed.attempt) == (
        run.state,
        run.details,
        run.attempt,
    )
    assert [replayed.nodes[node.rank][0] for node in run.nodes] == [n.state for n in run.nodes]
