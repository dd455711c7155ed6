"""Why a run with an array is in its state, in numbers of replicas: there may be 100,000 of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.describe import state
from muster.describe.replicas import ENDED, progress
from muster.lifecycle.ranks import shortened_ranks
from muster.lifecycle.states import RunState
from muster.lifecycle.status import RunStatus
from muster.plan.model import RunPlan

#: States of replicas with nodes that have not ended.
_ALIVE = ("QUEUED", "STARTING", "RUNNING")


class ArrayNow(Struct, frozen=True):
    """The replicas of the only group of a run."""

    #: State -> number of replicas that have started.
    states: Mapping[str, int]
    #: Replicas that run, or will.
    total: int
    #: Numbers of the first that failed.
    failed: Sequence[int]

    def failed_text(self) -> str:
        """`failed: replicas 4, 17, 40-41 and 7 more`; "" if none has failed."""
        count = self.states.get("FAILED", 0)
        if not count:
            return ""
        text = shortened_ranks(self.failed, len(self.failed), count)
        return f"failed: replica{'s' * (count != 1)} {text}"


def why(plan: RunPlan, status: RunStatus, array: ArrayNow, restarts: int, now: float) -> list[str]:
    """Sentences, the most important first. status: without its nodes. restarts, now: as for
    `state.why`."""
    past = state.restarts_sentences(plan, status, restarts)
    return [line for line in (*_state(plan, status, array, now), *past) if line]


def _state(plan: RunPlan, status: RunStatus, array: ArrayNow, now: float) -> list[str]:
    done = progress(array.states, array.total, at_rest=status.state.at_rest)
    match status.state:
        case RunState.IN_PROGRESS:
            rate = _per_second(status, array, now)
            lines = [progress(array.states, array.total, rate), array.failed_text()]
            return [*state.stopping_sentences(status), *lines]
        case RunState.SUCCEEDED:
            return [f"{_success(plan, array)}; {done}", array.failed_text(), status.details]
        case RunState.FAILED:
            named = status.stopping is not None and status.stopping.names_failed
            failed = "" if named else array.failed_text()
            return [status.details, state.failure_time(status), failed, done]
        case RunState.CANCELING:
            grace = f"SIGKILL follows after the grace period ({plan.policy.grace_period:g} s)"
            left = sum(array.states.get(name, 0) for name in _ALIVE)
            waits = f"waiting for {left:,} replicas" if left != 1 else "waiting for 1 replica"
            return [status.details, f"{waits}; {grace}" if left else state.ALL_ENDED]
        case RunState.CANCELED:
            return [status.details, array.failed_text(), done]
        case RunState.SUSPENDED:
            return [status.details, done, array.failed_text(), state.to_resume(plan)]
        case _:
            return state.sentences_without_nodes(plan, status)


def _success(plan: RunPlan, array: ArrayNow) -> str:
    """Why the run succeeded."""
    (group,) = plan.policy.groups
    ended = sum(array.states.get(name, 0) for name in ("SUCCEEDED", "FAILED"))
    if group.early_success and ended < array.total:
        return "early success: enough replicas succeeded"
    return state.success_sentence(plan)


def _per_second(status: RunStatus, array: ArrayNow, now: float) -> float | None:
    """Replicas that ended in a second, since the run started."""
    ended = sum(array.states.get(name, 0) for name in ENDED)
    since = now if status.running_since is None else status.running_since
    seconds = status.ran_before + now - since
    return ended / seconds if ended and seconds > 0 else None
