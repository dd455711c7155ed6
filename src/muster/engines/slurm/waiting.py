"""What is reported while a job waits: once, and again when it is something else."""

from __future__ import annotations

from collections.abc import Sequence

from muster.engines.slurm.client import Job
from muster.engines.slurm.reasons import (
    expected_start,
    is_news,
    most_telling,
    place_in_line,
    why_it_waits,
)


class Waiting:
    """A job that waits."""

    def __init__(self) -> None:
        self._looked = False  # whether Slurm has said that it waits
        self._job: Job | None = None  # as it was reported
        self._reported = ""

    def see(self, jobs: Sequence[Job]) -> str | None:
        """What to report of its components now; None: nothing new."""
        job = most_telling(job for job in jobs if job.waits)
        # most start soon after Slurm has looked at them
        soon = job.reason == "None" and not self._looked
        self._looked = True
        if soon or not is_news(self._job, job):
            return None
        self._job = job
        return self._tell(f"{why_it_waits(job)}{place_in_line(job)}{expected_start(job)}")

    def say(self, why: str) -> bool:
        """It waits for something that Slurm does not know of. Returns whether that is new."""
        self._job = None  # it is reported again after this
        return self._tell(why) is not None

    def _tell(self, why: str) -> str | None:
        if why == self._reported:
            return None
        self._reported = why
        return why
