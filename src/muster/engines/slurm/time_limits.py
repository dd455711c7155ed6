"""Has programs save before the time limit of their job, whatever has set it: `slurm.time`, the
partition, or an administrator while the job runs.

Slurm's own warning (`sbatch --signal`) is not used: it is for the processes of a step, of which
most do not expect it, or for the script alone; and it does not wait for the last of the programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from muster.engines.loop import Participant, RunLoop
from muster.engines.slurm.client import Job

#: Seconds by which programs are to have saved before the limit: Slurm has to be asked whether it
#: has moved, and clocks may differ.
_MARGIN = 15.0


class _Limit(Struct):
    """The time limit of a running job. end: epoch seconds; None: it has none."""

    end: float | None
    warned: bool = False


class TimeLimits:
    """The limits of a run's jobs, by the numbers of their allocations.

    grace: seconds that programs get to save; None: they are not asked to. look: asks Slurm about a
    job again, whose limit may have moved. warn: has the nodes of a job save.
    """

    def __init__(
        self,
        loop: RunLoop,
        grace: float | None,
        look: Callable[[int], object],
        warn: Callable[[int], object],
    ) -> None:
        self._loop, self._grace, self._look, self._warn = loop, grace, look, warn
        self._limits: dict[int, _Limit] = {}
        self._participant: Participant | None = None

    def is_unknown(self, number: int) -> bool:
        """Whether Slurm has still to be asked when a job ends that has started."""
        return self._grace is not None and number not in self._limits

    def see(self, number: int, jobs: Sequence[Job]) -> None:
        """The components of a job run. If it is about to reach its limit, warn its nodes, once."""
        if self._grace is None:
            return
        ends = [job.end for job in jobs if job.end is not None]
        limit = self._limits.setdefault(number, _Limit(None))
        limit.end = min(ends, default=None)
        at = self._due(limit)
        if at is not None and not limit.warned and at <= self._loop.now():
            limit.warned = True
            self._warn(number)
        self._wait()

    def forget(self, number: int) -> None:
        """A job has ended, or is of no interest any more."""
        self._limits.pop(number, None)
        self._wait()

    def close(self) -> None:
        """Watch no limits any more."""
        self._limits.clear()
        if self._participant is not None:
            self._participant.close()

    def _due(self, limit: _Limit) -> float | None:
        """When to warn, in the loop's time."""
        if limit.end is None or self._grace is None:
            return None
        return self._loop.now() + (limit.end - time.time()) - self._grace - _MARGIN

    def _wait(self) -> None:
        """Wake up for the next one. Slurm is being asked about those that are due."""
        times = (self._due(one) for one in self._limits.values() if not one.warned)
        due = [at for at in times if at is not None and at > self._loop.now()]
        if due and self._participant is None:
            self._participant = self._loop.add(self._step)
        if self._participant is not None:
            self._participant.wake_at(min(due, default=None))

    def _step(self, _ready: Mapping[int, int]) -> None:
        """Look again at jobs that are about to reach their limits: these may have moved."""
        for number, limit in [*self._limits.items()]:
            at = self._due(limit)
            if at is not None and not limit.warned and at <= self._loop.now():
                self._look(number)
        self._wait()
