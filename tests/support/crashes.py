"""Runs whose supervisor is killed at a chosen point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Starts a run whose supervisor dies at point N: before and after each record, after each effect.
SUBMIT = """
import os, sys
from muster.client.client import Client
from muster.control.drive import DrivenRun
from muster.control.launcher import Launcher
from muster.control.ledger import StoreLedger

left = [int(sys.argv[1])]

def count_down():
    left[0] -= 1
    if left[0] == 0:
        os._exit(9)  # like SIGKILL, which the first process of a namespace cannot send to itself

def deadly(function):
    def call(*args):
        count_down()
        result = function(*args)
        count_down()
        return result
    return call

StoreLedger.record = deadly(StoreLedger.record)
DrivenRun._carry_out = deadly(DrivenRun._carry_out)
client = Client(launcher=Launcher.fork())
job, new = client.job(sys.argv[2])
print(client.start(client.prepare_run(job, new_job=new)).id)
"""


def submit(point: int, job: Path) -> str:
    """Start a run of a job file whose supervisor dies at the point; return its id."""
    argv = [sys.executable, "-c", SUBMIT, str(point), str(job)]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
