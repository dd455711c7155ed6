"""What is known of a run."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from muster.client.node import Node, node_from
from muster.describe.times import moment, optional_moment, span
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import Reason
from muster.secrets import hidden, redacted
from muster.store.records import RunRecord, running_time
from muster.store.run_columns import StoredPlan, lifecycle_of, reading

if TYPE_CHECKING:
    from muster.api.answers import ClusterAccess
    from muster.api.interface import MusterAPI
    from muster.api.usage import NodeUsage
    from muster.client.outputs import Outputs
    from muster.client.table import Table
    from muster.lifecycle.policy import GroupPolicy
    from muster.lifecycle.status import Failure


class Setting(Struct, frozen=True):
    """One effective setting of a run."""

    #: `max_runtime`, `node_groups[workers].env.SEED`, ...
    path: str
    value: Any
    #: `job`, `override` or `default`.
    origin: str


class RunFacts:
    """The properties of a run."""

    def __init__(self, api: MusterAPI, record: RunRecord) -> None:
        self._api = api
        self._record = record

    # Facts

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """`<job name>-<number>`."""
        return self._record.name

    @property
    def display_name(self) -> str | None:
        """The name given with `run_name`; other runs may have the same."""
        return self._record.display_name

    @property
    def tags(self) -> dict[str, str]:
        """The labels of the Job and of the run."""
        shown: dict[str, str] = hidden(dict(self._record.tags))
        return shown

    @property
    def retry_of(self) -> str | None:
        """The name of the run whose replicas it runs again; None if it is no retry."""
        from muster.spec.values import RETRY_TAG

        return self.tags.get(RETRY_TAG)

    @property
    def rerun_of(self) -> str | None:
        """The name of the run that it runs again (`muster rerun`); None if there is none."""
        from muster.spec.values import RERUN_TAG

        return self.tags.get(RERUN_TAG)

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that has started it; None if none has."""
        from muster.spec.values import SCHEDULE_TAG

        return self.tags.get(SCHEDULE_TAG)

    @property
    def scheduled_at(self) -> datetime | None:
        """The time of the schedule that it was started for, in UTC; None if there is none."""
        from muster.spec.values import SCHEDULED_TIME_TAG

        text = self.tags.get(SCHEDULED_TIME_TAG)
        return None if text is None else datetime.fromisoformat(text)

    @property
    def created_by(self) -> str:
        """The user who started it; "" if unknown."""
        return self._record.created_by

    @property
    def number(self) -> int:
        """Counts the runs of Jobs with this name, from 1."""
        return self._record.number

    @property
    def job_id(self) -> str:
        return self._record.job_id

    @property
    def job_name(self) -> str:
        return self._record.job_name

    @property
    def state(self) -> str:
        """ACCEPTED, QUEUED, IN_PROGRESS, SUSPENDED, SUCCEEDED, FAILED, CANCELING or CANCELED."""
        return str(self._record.state)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return RunState(self._record.state).terminal

    @property
    def details(self) -> str:
        """Why it is in this state, if there is more to say; for a QUEUED run, what it waits for."""
        if self.state == RunState.QUEUED:
            return self._api.waiting_for(self.id)
        return redacted(self._record.details)

    @property
    def exit_code(self) -> int | None:
        """0, or that of the first node that failed; None if there is none."""
        return self._record.exit_code

    @property
    def broken(self) -> bool:
        """Whether it has failed because Muster or its engine could not continue it, not because a
        node failed."""
        return lifecycle_of(self._record).broken

    @property
    def created_at(self) -> datetime:
        """When it was submitted, in UTC."""
        return moment(self._record.created_at)

    @property
    def started_at(self) -> datetime | None:
        """Its first start, in UTC; None before."""
        return optional_moment(self._record.started_at)

    @property
    def finished_at(self) -> datetime | None:
        """Its end, in UTC; None before."""
        return optional_moment(self._record.finished_at)

    @property
    def seconds(self) -> float | None:
        """Seconds it has run, without the time it was suspended; None before it starts."""
        if self._record.started_at is None:
            return None
        kept = lifecycle_of(self._record)
        until = self._record.finished_at or time.time()
        return running_time(kept.ran_before, kept.running_since, until)

    @property
    def suspended_seconds(self) -> float:
        """Seconds it was suspended since its first start, with the time until its nodes ran again;
        0 if it never was."""
        seconds, kept = self.seconds, lifecycle_of(self._record)
        if seconds is None or not (kept.resumes or self.state == RunState.SUSPENDED):
            return 0.0
        started = self._record.started_at or 0.0
        return max((self._record.finished_at or time.time()) - started - seconds, 0.0)

    @property
    def node_count(self) -> int:
        """The number of nodes, without those that are scaled down."""
        return self._record.node_count

    @property
    def attempt(self) -> int:
        """The number of restarts of the whole run; 0 at first."""
        return self._record.attempt

    @property
    def restarts(self) -> int:
        """The number of restarts after failures, of nodes, replicas and the whole run; read from
        the store at each access."""
        return self._api.restarts(self.id)

    @property
    def spec(self) -> dict[str, Any]:
        """The effective spec in normal form, as plain data; secrets hidden."""
        shown: dict[str, Any] = hidden(to_builtins(self._record.spec))
        return shown

    def settings(self) -> list[Setting]:
        """Every effective setting and its origin; secrets in `env` hidden."""
        from muster.spec.resolve import setting_value

        network = self.network  # the spec may leave it to the framework
        with reading(self._record, "spec or origins"):
            spec = hidden({**self._record.spec, "network": network})
            return [Setting(p, setting_value(spec, p), o) for p, o in self._record.origins.items()]

    # Nodes and what they have

    @property
    def nodes(self) -> Table[Node]:
        """In rank order, without those of replicas that were removed by scaling."""
        from muster.client.table import Table

        found = self._api.nodes(self.id)
        return Table(node_from(node) for node in found if node.state != NodeState.SCALED_DOWN)

    @property
    def shown_nodes(self) -> Table[Node]:
        """The nodes that lists show: as `nodes`, but of arrays, which may have 100,000, those that
        run, and the first that failed."""
        from muster.client.table import Table

        found = self._api.shown_nodes(self.id) if self.has_array else self._api.nodes(self.id)
        return Table(node_from(node) for node in found if node.state != NodeState.SCALED_DOWN)

    @property
    def replica_states(self) -> dict[str, int]:
        """State -> number of replicas of its arrays, or of all groups if it has none; NOT_STARTED
        for those that have not started."""
        from muster.api.replica_table import TableQuery

        found = self._api.replica_table([self.id], TableQuery(limit=0))
        rest = {"NOT_STARTED": found.not_started} if found.not_started else {}
        return {**found.states, **rest}

    def progress(self, per_second: float | None = None) -> str:
        """How far its array is: `412 of 10,000 done, 3 failed, 8 running`. per_second: how many
        replicas end in a second."""
        from muster.describe.replicas import progress

        states = self.replica_states
        at_rest = RunState(self.state).at_rest
        return progress(states, sum(states.values()), per_second, at_rest=at_rest)

    @property
    def details_name_failed(self) -> bool:
        """Whether its details name the replicas of its array that have failed."""
        ending = lifecycle_of(self._record).stopping
        return self.done and ending is not None and ending.names_failed

    @property
    def usage(self) -> dict[int, NodeUsage]:
        """What its nodes have used of CPUs, memory, disks and network, by rank.

        Averages and peaks of samples, taken every 1 to 5 seconds; of a node in progress, those
        until some seconds ago.
        """
        return self._api.usage(self.id)

    @property
    def replicas(self) -> dict[str, int]:
        """Group -> its desired number of replicas."""
        return self._api.replicas(self.id)

    @property
    def network(self) -> str:
        """`shared` with this machine, `cluster` or `isolated`."""
        return str(self._plan.get("network"))

    @property
    def endpoints(self) -> dict[str, str]:
        """The addresses of its cluster by name (`address`, `dashboard`); empty if it has no
        cluster, or the cluster has not started."""
        return self._api.endpoints(self.id)

    @property
    def tls_folder(self) -> Path | None:
        """The folder with `ca.pem`, `cert.pem` and `key.pem`; None if its nodes use no TLS."""
        folder = self.cluster_access().folder
        return Path(folder) if folder else None

    def cluster_access(self) -> ClusterAccess:
        """The certificates and the token that clients of its cluster need."""
        return self._api.cluster_access(self.id)

    @property
    def processes_per_node(self) -> int:
        return int(self._plan.get("processes_per_node"))

    def group_sizes(self) -> dict[str, int]:
        """Group -> its maximum of nodes, in rank order."""
        return self._plan.group_sizes()

    @property
    def has_array(self) -> bool:
        """Whether a group is an array."""
        return bool(self._plan.arrays())

    def arrays(self) -> dict[str, tuple[int, int]]:
        """Its groups that are arrays -> the first rank, and the nodes of each replica."""
        return {group.name: (group.first_rank, group.nodes) for group in self._plan.arrays()}

    def replica_ranks(
        self,
        replicas: Collection[int] | int | str,
        groups: Collection[str] | None = None,
        *,
        several: str = "name one with --group",
    ) -> list[int]:
        """The ranks of the nodes of these replicas (numbers, or `3,17,40-42`), of its array, or of
        the only one of `groups`. Raises InvalidInput if there is no such replica, or it is not
        clear of which group. several: what to do then."""
        from muster.client.filters import numbers_in

        group = self._group_with_replicas(groups, several)
        numbers = numbers_in("replicas", replicas) or []
        absent = [number for number in numbers if not 0 <= number < group.replicas]
        if absent:
            from muster.lifecycle.ranks import shortened_ranks

            text = f"{self.name} has no replica {shortened_ranks(absent)}"
            hint = f"replicas of {group.name} are 0 to {group.replicas - 1}"
            raise InvalidInput(Problem("replica", text, hint))
        return [rank for number in numbers for rank in group.replica_ranks(number)]

    def replicas_of(self, ranks: Iterable[range]) -> set[int]:
        """The replicas with these ranks, of its arrays, or of all groups if it has none."""
        groups = self._plan.arrays() or self._plan.policies()
        return {
            (rank - group.first_rank) // group.nodes
            for part in ranks
            for rank in part
            for group in groups
            if rank in group.ranks
        }

    def _group_with_replicas(self, names: Collection[str] | None, hint: str) -> GroupPolicy:
        groups = self._plan.arrays() or self._plan.policies()
        if names:
            groups = [group for group in self._plan.policies() if group.name in names]
        if not groups:
            given = ", ".join(names or ())
            known = ", ".join(group.name for group in self._plan.policies())
            text = f"{self.name} has no group {given}"
            raise InvalidInput(Problem("group", text, f"its groups: {known}"))
        if len(groups) != 1:
            text = f"several groups of {self.name} have replicas"
            raise InvalidInput(Problem("replica", text, hint))
        return groups[0]

    def limits(self) -> dict[str, str]:
        """Group -> what this machine gives its nodes, for groups with resources or a shape."""
        return self._api.limits(self.id) if self._plan.resources() else {}

    def directories_in_place(self) -> list[str]:
        """The directories of the machine where programs start, not in a copy of the code."""
        return self._plan.directories_in_place()

    def outputs(
        self, *, ranks: Collection[int] | None = None, groups: Collection[str] | None = None
    ) -> Outputs:
        """The files that its programs have written so far to $MUSTER_OUTPUTS and
        $MUSTER_RUN_OUTPUTS, including executed notebooks.

        With ranks or groups, those of these nodes; files that nodes share are left out. Raises
        InvalidInput for parts that the run does not have.
        """
        from muster.client.outputs import outputs_from

        return outputs_from(self._api, self.id, self._api.outputs(self.id, ranks, groups))

    # Why

    def why(self) -> list[str]:
        """Why it is in its state; the most important sentence first."""
        lines = [redacted(line) for line in self._api.why(self.id)]
        return [*lines[:1], *filter(None, [self.hint]), *lines[1:]]

    @property
    def notes(self) -> list[str]:
        """Settings that the engine does not apply, and why; nodes that exceed their disk."""
        notes = list(self._record.notes)
        if self._plan.limits_disk():
            from muster.describe.events import sentence

            found = [entry for entry in self._api.events(self.id) if entry.kind == "disk"]
            notes += dict.fromkeys(sentence(entry.kind, entry.data) for entry in found)
        return [redacted(note) for note in notes]

    @property
    def cause(self) -> dict[str, Any] | None:
        """The cause of the run's last failure: rank, group, reason, exit_code, signal, message, at,
        raised_at, and a hint, which is "" for most; None if nothing has failed."""
        first = lifecycle_of(self._record).cause
        if first is None:
            return None
        from muster.client.run_json import failure_dict

        return {**failure_dict(first), "hint": redacted(self._hint(first))}

    @property
    def consequences(self) -> list[dict[str, Any]]:
        """The reported failures that followed from the cause."""
        from muster.client.run_json import failure_dict
        from muster.lifecycle import cause

        kept = lifecycle_of(self._record)
        return [failure_dict(f) for f in cause.consequences(kept.failures, kept.cause)]

    @property
    def hint(self) -> str:
        """What to do about the failure of a failed run, if known; else ""."""
        if self.state != RunState.FAILED:
            return ""
        first = lifecycle_of(self._record).cause
        return redacted(self._hint(first)) if first is not None else ""

    def _hint(self, failure: Failure) -> str:
        from muster.describe.missing_variables import hint_for as hint_for_variables

        if hint := hint_for_variables(str(self._plan.get("framework")), failure.message):
            return hint
        if failure.reason is Reason.NODE_LOST:
            from muster.describe.lost_supervisor import hint_for as hint_for_loss

            return hint_for_loss(failure.message, self._plan.get("policy").get("max_restarts", 0))
        left = self._plan.unsent_files()
        if left is None:
            return ""
        from muster.describe.missing_files import hint_for

        return hint_for(left, failure.message, self.id, self._plan.mounts())

    @property
    def _plan(self) -> StoredPlan:
        return StoredPlan(self._record)

    # As data and text

    def log_folder(self) -> Path:
        """The folder with the plain log files of the current attempt."""
        return Path(self._api.log_folder(self.id))

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-ready data; times as RFC 3339 text."""
        from muster.client.run_json import run_dict

        return run_dict(self, self._record)

    def _facts(self) -> dict[str, Any]:
        """What a table of runs has as columns."""
        return {
            "id": self.id,
            "name": self.name,
            "display_name": self.display_name,
            "job_name": self.job_name,
            "state": self.state,
            "details": self.details,
            "exit_code": self.exit_code,
            "nodes": self._record.node_count,
            "attempt": self.attempt,
            "created_by": self.created_by,
            "created_at": self.created_at,
            "started_at": self.started_at,
            "finished_at": self.finished_at,
            "seconds": self.seconds,
            "tags": self.tags,
        }

    def _cells(self) -> dict[str, str]:
        from muster.client.run_cells import run_cells

        return run_cells(self._record, seconds=self.seconds, details=self.details)

    def __str__(self) -> str:
        from muster.describe.failure import one_line

        took = f" after {span(self.seconds)}" if self.seconds is not None else ""
        details = f": {one_line(self.details)}" if self.details else ""
        return f"{self.name} is {self.state}{took}{details}"

    def __repr__(self) -> str:
        return f"<JobRun {self.name} {self.id} {self.state}>"

    def _repr_html_(self) -> str:
        from muster.client.run_html import run_card

        return run_card(self)
