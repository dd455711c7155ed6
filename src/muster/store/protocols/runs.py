"""Runs, their nodes, and what users request of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from muster.store.records import JobRecord, NodeRecord, RunRecord

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.identity import Owner
    from muster.store.records import (
        Lease,
        NodeFilter,
        PendingRequests,
        RunFilter,
        RunStep,
        RunSummary,
    )

#: Makes the records of a run from its Job, its number and its name.
RunBuilder = Callable[[JobRecord, int, str], tuple[RunRecord, Sequence[NodeRecord]]]


class Runs(Protocol):
    """See the module."""

    def insert(
        self,
        job: JobRecord,
        build: RunBuilder,
        owner: Owner | None = None,
        expires_at: float | None = None,
    ) -> RunRecord:
        """Store a run, its nodes, its lease and, if it is new, its Job in one durable transaction.

        Runs are numbered within the name of their Job, from 1; no number is given twice, not even
        that of a deleted run. The name of a run is `<job>-<number>`. owner: the process that is to
        drive the run, which has its first lease (`Lease.first`); None: nobody yet. expires_at: of
        that lease.
        """
        ...

    def get(self, run_id: str) -> RunRecord:
        """The run with this id, which must be complete. Raises NotFound, CorruptRecord."""
        ...

    def summary(self, run_id: str) -> RunSummary:
        """The summary of a run; its record may be corrupt. Raises NotFound."""
        ...

    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        """The nodes of a run, in rank order. Those of an array have no record before they start.
        chosen: None for all. Raises CorruptRecord."""
        ...

    def replica_states(self, run_id: str, group: str, nodes: int) -> dict[str, int]:
        """The number of a group's replicas by the states of their nodes, of those that have
        started: `FAILED,STOPPED` -> 3. Each state once, in alphabetical order. nodes: those of each
        replica."""
        ...

    def find(self, project: str, text: str) -> RunRecord:
        """A run by name, id, display name, id prefix of at least 4 characters, OCID that ends in
        the id, or `last` for the newest.

        Raises NotFound, InvalidInput if several runs match, CorruptRecord.
        """
        ...

    def find_id(self, project: str, text: str) -> str:
        """The id of the run that `find` finds; its record may be corrupt."""
        ...

    def listing(self, project: str | None, chosen: RunFilter) -> list[RunSummary]:
        """Summaries of runs, newest first. project: None for all."""
        ...

    def records(self, project: str | None, chosen: RunFilter) -> list[RunRecord]:
        """Records of runs, newest first. project: None for all. Raises CorruptRecord."""
        ...

    def state_counts(self) -> dict[str, int]:
        """The number of runs in each state, of all projects."""
        ...

    def first_owner(self) -> str | None:
        """Who has started the oldest run, of all projects; None if there is none."""
        ...

    def live(self) -> list[RunSummary]:
        """Runs of all projects that have not ended, in no order."""
        ...

    def needing_supervisor(self) -> list[str]:
        """Ids of the runs of all projects that a process should be driving, in no order: all that
        have not ended, except those that are suspended and not requested to be canceled."""
        ...

    def expired(self, now: float) -> list[str]:
        """Ids of the runs whose `ttl_after_finished` is over."""
        ...

    def save(self, *steps: RunStep) -> None:
        """Record steps of runs in one transaction: all of them or, if it raises, none.

        Durable if one of the runs has ended. Raises LeaseLost if another process has the lease of
        one of them, NotFound.
        """
        ...

    def end_corrupt(self, lease: Lease, why: str, now: float) -> None:
        """End a run that cannot be driven because its record is corrupt. Nothing if it has ended.
        Raises LeaseLost, NotFound."""
        ...

    def check_writable(self, run_id: str) -> None:
        """Raises StoreError if the run's record cannot be written, before its files are deleted."""
        ...

    def delete(self, run_id: str) -> None:
        """Delete a run, its nodes, its events and its lease."""
        ...

    def request(
        self, run_id: str, kind: Literal["cancel", "suspend"], why: str, now: float
    ) -> bool:
        """Record a request to cancel or to suspend a run. False if the run has ended or does not
        exist, or the request is pending already."""
        ...

    def request_scale(self, run_id: str, group: str, replicas: int, why: str, now: float) -> bool:
        """Record a request to scale a group. It replaces an earlier one for that group. False if
        the run has ended or does not exist, or the last request was for the same number."""
        ...

    def pending_requests(self, run_id: str) -> PendingRequests:
        """The pending requests of a run. Raises CorruptRecord."""
        ...

    def with_requests(self, run_ids: Collection[str]) -> list[str]:
        """Those of these runs that have pending requests, in no order."""
        ...
