"""The names of what a run and a node can be in."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """State of a JobRun (OCI: JobRun.lifecycleState; SUSPENDED is JobSet's)."""

    ACCEPTED = "ACCEPTED"
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
        """Nothing leaves a terminal state (DELETED aside)."""
        return self in TERMINAL

    @property
    def at_rest(self) -> bool:
        """Nothing of the run is left running, and nobody drives it."""
        return self in AT_REST


TERMINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED, RunState.DELETED})
AT_REST = TERMINAL | {RunState.SUSPENDED}


class JobState(StrEnum):
    """State of a Job (OCI: Job.lifecycleState)."""

    ACTIVE = "ACTIVE"
    DELETED = "DELETED"  # its record and its runs can be read, and no run of it can start


class NodeState(StrEnum):
    """State of one node of a run, within its attempt."""

    PARKED = "PARKED"  # its replica is not wanted at present
    PENDING = "PENDING"  # its group's turn has not come
    STARTING = "STARTING"  # handed to the engine
    RUNNING = "RUNNING"  # its processes run
    READY = "READY"  # and its startup probe has succeeded, or it has none
    SUCCEEDED = "SUCCEEDED"  # every process exited 0
    FAILED = "FAILED"  # a process failed, or the node could not start
    STOPPED = "STOPPED"  # ended by Muster: cancel, deadline, another node's failure

    @property
    def ended(self) -> bool:
        """No process of the node is left."""
        return self in ENDED


ENDED = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.STOPPED})
#: Something of the node may be running.
ALIVE = frozenset({NodeState.STARTING, NodeState.RUNNING, NodeState.READY})
