"""Slurm's states and reasons, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from muster.engines.slurm.client import Job
from muster.lifecycle.status import Reason

#: Why a job waits (squeue's `%r`).
_WAITS = {
    "None": "Slurm has not looked at it yet",
    "Resources": "nodes are not free",
    "Priority": "jobs of higher priority come first",
    "Dependency": "another job has to end first",
    "BeginTime": "its start time has not come",
    "JobHeldUser": "it is held: `scontrol release {id}` releases it",
    "JobHeldAdmin": "it was held by an administrator",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it needs more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit exceeds that of its partition: change slurm.time",
    "PartitionConfig": "it needs more than its partition allows",
    "Licenses": "licenses are in use",
    "Reservation": "its reservation has not begun",
    "NodeDown": "a node that it needs is down",
    "BadConstraints": "no nodes satisfy its constraints",
    "JobLaunchFailure": "it could not be launched",
    "Cleaning": "its last execution is being cleaned up",
}
#: Reasons for which a job waits until somebody does something.
_LIMITS = ("QOS", "Assoc", "MaxCpu", "MaxNode", "MaxJobs", "MaxSubmit")

#: Reasons that tell nothing of what the job asks for: the queue continues by itself.
_PASSING = ("None", "Priority", "Resources")
#: Seconds by which the time of a start has to move to be reported again: it moves with every look.
_NEWS = 90.0


def most_telling(jobs: Iterable[Job]) -> Job:
    """The component whose reason to report; reasons that need action come first. Raises ValueError
    for no jobs."""
    return max(jobs, key=lambda job: (_weight(job), -job.id))


def _weight(job: Job) -> int:
    word = _word(job)
    if word in _PASSING:
        return _PASSING.index(word)
    if word.startswith(_LIMITS) or word.startswith(("Partition", "BadConstraints")):
        return len(_PASSING) + 1
    return len(_PASSING)


def _word(job: Job) -> str:
    return job.reason.strip("()").split(",")[0].split(" ")[0]


def expected_start(job: Job) -> str:
    """A phrase for people, with the minute in which Slurm expects a waiting job to start; "" if it
    expects none."""
    start = job.start.replace("T", " ")[: len("2026-01-02 03:04")]
    return f", start expected {start}" if job.start and job.waits else ""


def place_in_line(job: Job) -> str:
    """A phrase for people, with how many jobs come before one that waits; "" if that is not
    known."""
    if job.ahead is None:
        return ""
    many = "no job" if not job.ahead else "1 job" if job.ahead == 1 else f"{job.ahead} jobs"
    return f", {many} of partition {job.partition} before it"


def is_news(reported: Job | None, job: Job) -> bool:
    """Whether to report why a job waits. reported: what was reported last; None: nothing."""
    if reported is None or why_it_waits(reported) != why_it_waits(job):
        return True
    if job.ahead is not None and (
        reported.ahead is None
        or abs(reported.ahead - job.ahead) > max(reported.ahead, job.ahead) // 10
    ):
        return True
    if not job.start or reported.start == job.start:
        return False
    try:
        moved = datetime.fromisoformat(job.start) - datetime.fromisoformat(reported.start)
    except ValueError:  # none was expected
        return True
    return abs(moved.total_seconds()) > _NEWS


def why_it_waits(job: Job) -> str:
    """A phrase for people, without its start."""
    reason, word = job.reason.strip("()"), _word(job)
    if known := _WAITS.get(word):
        text = known.format(id=job.leader)
    elif word.startswith(_LIMITS):
        text = f"a limit of its account or QOS is reached ({word})"
    else:
        text = reason or "Slurm does not say why"
    return f"Slurm job {job.leader}: {text}"


#: How jobs end (squeue's `%T`).
_ENDS = {
    "BOOT_FAIL": "its nodes could not boot",
    "CANCELLED": "was canceled in Slurm",
    "COMPLETED": "has ended",
    "DEADLINE": "missed its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "exceeded its memory",
    "PREEMPTED": "was preempted",
    "REVOKED": "was revoked",
    "TIMEOUT": "reached its time limit",
}
_REASONS = {
    "CANCELLED": Reason.CANCELED,
    "DEADLINE": Reason.DEADLINE,
    "PREEMPTED": Reason.PREEMPTED,
    "OUT_OF_MEMORY": Reason.OUT_OF_MEMORY,
    "TIMEOUT": Reason.DEADLINE,
}


def how_it_ended(number: str, job: Job | None) -> tuple[Reason, str]:
    """Why the nodes of a job are gone, and a phrase for people. job: None if Slurm does not know
    it any more."""
    if job is None:
        return Reason.NODE_LOST, f"Slurm does not know job {number} any more"
    if job.preempted:  # it may have ended in its grace time
        return Reason.PREEMPTED, f"Slurm job {number} was preempted"
    end = _ENDS.get(job.state, f"is {job.state}")
    more = f" ({job.reason})" if job.state == "FAILED" and job.reason != "None" else ""
    return _REASONS.get(job.state, Reason.NODE_LOST), f"Slurm job {number} {end}{more}"


def why_it_ends(number: str, jobs: Iterable[Job]) -> tuple[Reason, str] | None:
    """Why a job is ending whose processes were told to end: as `how_it_ended`. jobs: its
    components, with details. None: that is not known before it has ended."""
    for job in jobs:
        if job.preempted:
            return Reason.PREEMPTED, f"Slurm job {number} was preempted"
        if _word(job) == "TimeLimit":
            return Reason.DEADLINE, f"Slurm job {number} reached its time limit"
    return None


def worst(jobs: Iterable[Job]) -> Job | None:
    """The component of a job that says most about its end; None if there is none."""
    return max(jobs, key=lambda job: (job.preempted, job.state != "COMPLETED"), default=None)
