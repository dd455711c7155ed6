"""The partitions of a cluster, and whether their time limits allow a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.engines.slurm import script
from muster.engines.slurm.client import run
from muster.engines.slurm.options import merged
from muster.errors import Problem
from muster.plan.model import RunPlan

#: As sinfo prints them: MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS:MINUTES:SECONDS.
_LIMIT = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)")


class Partition(Struct, frozen=True):
    """What Slurm says of a partition."""

    name: str
    #: Whether its nodes can be used.
    up: bool
    nodes: str
    #: The longest time of a job, in Slurm's words.
    limit: str
    #: Whether jobs that name none are in it.
    default: bool

    @property
    def minutes(self) -> int | None:
        """The longest time of a job, in minutes; None: there is no limit."""
        found = _LIMIT.fullmatch(self.limit)
        if found is None:
            return None
        days, hours, minutes, _ = (int(part or 0) for part in found.groups())
        return (days * 24 + hours) * 60 + minutes


def partitions(environ: Mapping[str, str]) -> list[Partition]:
    """All partitions. Raises CannotRun."""
    text = run(("sinfo", "--noheader", "--format=%R|%a|%D|%l|%P"), environ)
    rows = [line.strip().split("|") for line in text.splitlines() if line.count("|") == 4]
    return [
        Partition(name, up == "up", nodes, limit, marked.endswith("*"))
        for name, up, nodes, limit, marked in rows
    ]


def time_problems(
    plan: RunPlan, defaults: Mapping[str, Any], environ: Mapping[str, str]
) -> list[Problem]:
    """Problems of groups whose job would wait for ever, as its time limit, which follows from
    `max_runtime`, exceeds that of its partition. A limit that the user has set is not checked.
    defaults: options of the profile. Raises CannotRun."""
    limit = script.time_limit(plan)
    if limit is None or "SBATCH_TIMELIMIT" in environ:
        return []
    known = partitions(environ)
    found = []
    for group in plan.groups:
        options = merged(defaults, group.slurm)
        if "time" in options or _given("time", options):
            continue
        partition: str | None = (
            environ.get("SBATCH_PARTITION")
            or _given("partition", options)
            or options.get("partition")
        )
        names = None if partition is None else partition.split(",")
        own = [one for one in known if (one.default if names is None else one.name in names)]
        longest = max(own, key=lambda one: one.minutes or 0, default=None)
        if longest is None or any(one.minutes is None or one.minutes >= limit for one in own):
            continue
        assert longest.minutes is not None
        text = (
            f"needs a job of {limit} minutes, with the time to start and to end, but "
            f"partition {longest.name} allows {longest.limit}: group {group.name} would wait for "
            "ever"
        )
        found.append(Problem("max_runtime", text, _advice(plan, limit, longest)))
    return found


def _given(name: str, options: Mapping[str, Any]) -> str:
    """The value of a flag in `extra`; "" if it is not there."""
    values = (flag.partition(f"--{name}=")[2] for flag in options.get("extra", ()))
    return next((value for value in values if value), "")


def _advice(plan: RunPlan, limit: int, partition: Partition) -> str:
    assert partition.minutes is not None
    fits = int(plan.policy.max_runtime // 60) - (limit - partition.minutes)
    ways = [f"set max_runtime to {fits}m or less"] if fits > 0 else []
    ways.append(f'set slurm.time to "{partition.limit}", and the job may end before the run')
    return ", or ".join([*ways, "use another partition"])
