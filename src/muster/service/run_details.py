"""Read what is stored of a run besides its record: its status, its output and other files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from muster.lifecycle.states import RunState
from muster.service.stored_plan import StoredPlan
from muster.storage.home import Home

if TYPE_CHECKING:
    from muster.control.persist import Lifecycle
    from muster.service.context import Context
    from muster.storage.log_index import StreamInfo
    from muster.storage.run_output import RunOutput
    from muster.storage.usage import NodeUsage
    from muster.store.records import RunRecord, RunSummary


def lifecycle(run: RunRecord) -> Lifecycle:
    """The part of the run's status that has no column. Raises CorruptRecord."""
    from muster.control.persist import lifecycle_of  # lists of runs do not need it

    return lifecycle_of(run)


def why(context: Context, run: RunRecord) -> list[str]:
    """Why the run is in its state; the most important sentence first. Raises CorruptRecord."""
    from muster.control.persist import plan_of, status_of
    from muster.describe.state import why

    plan = plan_of(run)
    status = status_of(run, list(context.store.runs.nodes(run.id)), plan.policy)
    if status.state is RunState.QUEUED:
        status = replace(status, details=waiting_for(context.home, run)[0])
    restarts = context.store.events.count(run.id, "restart")
    return list(why(plan, status, restarts, time.time()))


def waiting_for(home: Home, *queued: RunRecord | RunSummary) -> list[str]:
    """What each of these QUEUED runs waits for by now, in numbers; as recorded if it has just been
    admitted."""
    from muster.engines.choice import default_engine  # few runs wait

    waiting = default_engine().waiting(home)
    return [waiting.get(run.id) or run.details for run in queued]


def replicas(run: RunRecord) -> dict[str, int]:
    """Group -> its desired number of replicas. Raises CorruptRecord."""
    from muster.control.persist import plan_of
    from muster.control.replicas import desired_replicas

    return desired_replicas(run, plan_of(run))


def limits(run: RunRecord) -> dict[str, str]:
    """Group -> what this machine gives its nodes, for groups with resources or a shape."""
    resources = StoredPlan(run).resources()
    if not resources:
        return {}
    from muster.engines.choice import default_engine

    return default_engine().limits(resources)


def directories_in_place(run: RunRecord) -> list[str]:
    """The directories of the machine where the run's programs start, not in a copy of the code."""
    return StoredPlan(run).directories_in_place()


def endpoints(home: Home, run_id: str) -> dict[str, str]:
    """The addresses of the run's cluster by name; empty if it has none, or has not started."""
    from muster.storage import run_files

    return run_files.read_endpoints(home.run_dir(run_id))


def usage(home: Home, run_id: str) -> dict[int, NodeUsage]:
    """What the run's nodes have used, by rank; empty for a run of a version that recorded none."""
    from muster.storage.usage import read_usage

    return read_usage(home.run_dir(run_id))


def tls_folder(home: Home, run: RunRecord) -> Path | None:
    """The folder with the run's certificates; None if its nodes use no TLS."""
    return home.run_dir(run.id).tls if run.plan.get("tls") else None


def ranks_with_result(home: Home, run_id: str) -> Iterator[int]:
    """The ranks that left the result of a function, the oldest result first."""
    from muster.storage import run_files

    return run_files.ranks_with_result(home.run_dir(run_id))


def read_result(home: Home, run_id: str, rank: int) -> bytes | None:
    """The pickled result of a function on one rank; None if it left none."""
    from muster.storage import run_files

    return run_files.read_result(home.run_dir(run_id), rank)


def log_folder(home: Home, run: RunRecord) -> Path:
    """The folder with the plain log files of the run's current attempt."""
    return home.run_dir(run.id).logs(run.attempt).resolve()


def attempts_with_output(home: Home, run_id: str) -> list[int]:
    """The attempts whose output can be read, in order."""
    from muster.storage import run_output

    return run_output.attempts_with_output(home.run_dir(run_id))


def open_output(
    home: Home,
    run: RunRecord,
    select: Callable[[StreamInfo], bool],
    attempts: int | Literal["all"] | None,
) -> RunOutput:
    """The output of a run, to read. See `RunOutput`."""
    from muster.storage.run_output import RunOutput

    return RunOutput(home.run_dir(run.id), select, attempts, run.attempt)
