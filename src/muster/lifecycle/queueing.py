"""A run that waits for resources of the engine is QUEUED: none of its nodes starts.

Slurm: PENDING (Resources). No clock runs meanwhile: neither that of the run's maximum runtime nor
those of an attempt, a replica or a startup.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.lifecycle.events import AdmissionEvent, Event, RunAdmitted, RunQueued
from muster.lifecycle.states import UNSTARTED, RunState
from muster.lifecycle.status import unstarted
from muster.lifecycle.transition import Transition


def apply(transition: Transition, events: Sequence[Event]) -> None:
    """Apply what the engine reports. A run that is ending, or suspended, does not wait."""
    for event in events:
        if not isinstance(event, AdmissionEvent):  # nearly all are of nodes
            continue
        if transition.stopping or transition.run.state.at_rest:
            return
        match event:
            case RunQueued() if transition.run.state is not RunState.QUEUED:
                _queue(transition, event.why)
            case RunQueued() if transition.run.details != event.why:
                transition.set_state(RunState.QUEUED, event.why)
            case RunAdmitted() if transition.run.state is RunState.QUEUED:
                transition.update(state=RunState.ACCEPTED, details="")
                transition.log("run", state=RunState.ACCEPTED, details="", admitted=True)


def _queue(transition: Transition, why: str) -> None:
    for rank in transition.alive_ranks(transition.all_ranks):
        node = transition.nodes[rank]
        if node.state in UNSTARTED and not node.leaving:
            # a resume or a recovery had it started; the engine has not
            transition.set_node(rank, unstarted(node))
    run = transition.run
    ran = transition.now - run.running_since if run.running_since is not None else 0.0
    transition.set_state(
        RunState.QUEUED,
        why,
        attempt_started_at=None,
        ran_before=run.ran_before + ran,
        running_since=None,
    )
