"""States of runs, jobs and nodes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class RunState(StrEnum):
    """State of a JobRun (OCI: JobRun.lifecycleState; SUSPENDED is JobSet's, QUEUED Slurm's)."""

    ACCEPTED = "ACCEPTED"
    QUEUED = "QUEUED"
    IN_PROGRESS = "IN_PROGRESS"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    DELETED = "DELETED"
    NEEDS_ATTENTION = "NEEDS_ATTENTION"
    SUSPENDED = "SUSPENDED"

    @property
    def terminal(self) -> bool:
        """Whether the state is final (only DELETED can follow)."""
        return self in TERMINAL

    @property
    def at_rest(self) -> bool:
        """Whether the run has no processes and no supervisor."""
        return self in AT_REST


TERMINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED, RunState.DELETED})
AT_REST = TERMINAL | {RunState.SUSPENDED}


class JobState(StrEnum):
    """State of a Job (OCI: Job.lifecycleState)."""

    ACTIVE = "ACTIVE"
    DELETED = "DELETED"  # the job and its runs can be read; no new run of it can start


class NodeState(StrEnum):
    """State of one node of a run, in its current incarnation."""

    SCALED_DOWN = "SCALED_DOWN"  # its replica was removed by scaling
    #: It waits for its group's turn to start, a restart's delay, or old processes to end.
    PENDING = "PENDING"
    QUEUED = "QUEUED"  # it was handed to the engine, whose infrastructure lets it wait
    STARTING = "STARTING"  # it was handed to the engine
    RUNNING = "RUNNING"  # its processes run
    READY = "READY"  # its processes run, and its startup probe has succeeded if it has one
    SUCCEEDED = "SUCCEEDED"  # every process exited with 0
    FAILED = "FAILED"  # a process failed, or the node could not start
    STOPPED = "STOPPED"  # Muster stopped it: cancel, deadline, failure of another node

    @classmethod
    def _missing_(cls, value: object) -> NodeState | None:
        """Read the name that earlier versions stored for SCALED_DOWN."""
        return cls.SCALED_DOWN if value == _OLD_SCALED_DOWN else None

    @property
    def ended(self) -> bool:
        """Whether the node has ended, with no process left."""
        return self in ENDED


_OLD_SCALED_DOWN = "PARKED"


def stored_node_state(state: Any) -> Any:
    """A node state as stored by this or an earlier version, under its present name."""
    return NodeState.SCALED_DOWN if state == _OLD_SCALED_DOWN else state


ENDED = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.STOPPED})
#: States of a node with processes that may be running.
ALIVE = frozenset({NodeState.QUEUED, NodeState.STARTING, NodeState.RUNNING, NodeState.READY})
#: Those of them in which no process has started.
UNSTARTED = frozenset({NodeState.QUEUED, NodeState.STARTING})
