"""Ends the jobs of a run that nobody drives any more."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from muster.engines.remote.record import read_record
from muster.engines.slurm.client import (
    CannotRun,
    Job,
    cancel,
    cancel_steps,
    jobs_of_run,
    jobs_with_ids,
    steps_of_run,
)
from muster.engines.slurm.record import RECORD, Record
from muster.engines.slurm.script import job_name
from muster.engines.slurm.shared_folder import remove_files
from muster.errors import EngineError
from muster.storage.home import RunDir

#: Seconds until the jobs have to be gone; and between two looks.
_TIMEOUT = 120.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


def end_jobs(folder: RunDir, run_id: str, environ: Mapping[str, str]) -> None:
    """Cancel the jobs of a run, and wait until they are gone. Raises EngineError if that cannot be
    confirmed."""
    try:
        record = read_record(folder.path / RECORD, Record)
    except OSError as error:
        raise EngineError(f"the jobs of its nodes are not known: {error}") from None
    if record is None:
        return
    deadline, pause = time.monotonic() + _TIMEOUT, _FIRST_PAUSE
    try:
        while jobs := _left(record, run_id, environ):
            if time.monotonic() > deadline:
                states = ", ".join(f"{job.id} is {job.state}" for job in jobs)
                raise EngineError(f"its jobs in Slurm do not end: {states}")
            for name, leader in {(job.name, job.leader) for job in jobs}:
                cancel(name, str(leader), environ)
            time.sleep(pause)  # nothing tells when a job has ended
            pause = min(2 * pause, _LONGEST_PAUSE)
        while steps := _steps(record, run_id, environ):
            if time.monotonic() > deadline:
                raise EngineError(f"its steps in Slurm do not end: {', '.join(steps)}")
            cancel_steps(steps, environ)
            time.sleep(pause)
    except CannotRun as error:
        raise EngineError(f"its jobs in Slurm could not be ended: {error}") from None
    remove_files(Path(record.folder))
    (folder.path / RECORD).unlink(missing_ok=True)


def _steps(record: Record, run_id: str, environ: Mapping[str, str]) -> list[str]:
    """The steps of a run in jobs of others."""
    lent = {one.job for one in record.allocations if one.job is not None and one.lent}
    return [step for job in lent for step in steps_of_run(job, run_id, environ)]


def _left(record: Record, run_id: str, environ: Mapping[str, str]) -> list[Job]:
    """The jobs of a run that have not ended."""
    jobs = jobs_of_run(run_id, environ)
    known = {
        one.job: job_name(run_id, one.name_number)
        for one in record.allocations
        if one.job is not None and not one.lent
    }
    missing = known.keys() - {job.leader for job in jobs}
    if missing:
        jobs += [
            job
            for job in jobs_with_ids(missing, environ)
            if not job.over and job.name == known.get(job.leader)
        ]
    return jobs
