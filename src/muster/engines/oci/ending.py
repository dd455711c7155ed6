"""Ends a job with its runs: it is not there any more when that returns, or its end is certain."""

from __future__ import annotations

import time

from msgspec import Struct

from muster.engines.oci.client import Service
from muster.engines.oci.refusals import CannotRun

#: Seconds between two looks: nothing tells when a job run has ended.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class Times(Struct, frozen=True):
    """When what is done, see `time.monotonic`."""

    #: When its runs are canceled; until then, they may end by themselves.
    cancel_at: float
    #: Until when the service is asked again.
    deadline: float


def end_job(service: Service, name: str, job: str | None, times: Times, *, keep: bool) -> None:
    """Cancel the runs of a job, wait until they have ended, and delete it. Raises CannotRun if that
    could not be confirmed.

    name: of the job. job: its OCID; None: it is not known, and the job may not exist. keep: whether
    the job stays.
    """
    pause = _FIRST_PAUSE
    while True:
        try:
            cancel = time.monotonic() >= times.cancel_at
            if _has_ended(service, name, job, cancel=cancel, keep=keep):
                return
            why = CannotRun("its run does not end", refused=False)
        except CannotRun as error:
            if error.refused:
                raise
            why = error
        if time.monotonic() > times.deadline:
            raise why
        time.sleep(pause)
        pause = min(1.5 * pause, _LONGEST_PAUSE)


def _has_ended(service: Service, name: str, job: str | None, *, cancel: bool, keep: bool) -> bool:
    jobs = [job] if job is not None else service.jobs_named(name)
    ended = True
    for one in jobs:
        left = [run for run in service.runs_of(one) if not run.over]
        for run in left if cancel else ():
            service.cancel(run)
        ended = ended and not left and (keep or service.delete_job(one))
    return ended
