"""The Python API of a run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from muster.client.logs import chunks
from muster.client.messages import RunChunk
from muster.client.node import Node, node_from
from muster.client.selection import Selection, check_attempt, problems
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import NodeState, RunState
from muster.secrets import hidden, redacted
from muster.service import Service, run_details
from muster.service.stored_plan import StoredPlan, reading
from muster.storage.log_reader import LogRecord, records
from muster.store.records import EventRecord, RunRecord

if TYPE_CHECKING:
    from muster.lifecycle.status import Failure
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes


class Setting(Struct, frozen=True):
    """One effective setting of a run."""

    #: `max_runtime`, `node_groups[workers].env.SEED`, ...
    path: str
    value: Any
    #: `job`, `override` or `default`.
    origin: str


class JobRun:
    """One execution of a Job.

    Its properties are those of the last `refresh` or `wait`; `nodes`, and the entries of `notes` on
    disk use, are read from the store at each access.
    """

    def __init__(self, service: Service, record: RunRecord) -> None:
        self._service = service
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
        """ACCEPTED, IN_PROGRESS, SUSPENDED, SUCCEEDED, FAILED, CANCELING or CANCELED."""
        return str(self._record.state)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return RunState(self._record.state).terminal

    @property
    def details(self) -> str:
        """Why it is in this state, where the state alone does not tell."""
        return redacted(self._record.details)

    @property
    def exit_code(self) -> int | None:
        """0, or that of the first node that failed; None if there is none."""
        return self._record.exit_code

    @property
    def started(self) -> float | None:
        """Epoch seconds of its first start; None before."""
        return self._record.started_at

    @property
    def seconds(self) -> float | None:
        """How long it has run, without the time it was suspended; None before it starts."""
        if self._record.started_at is None:
            return None
        kept = run_details.lifecycle(self._record)
        if kept.running_since is None:
            return kept.ran_before
        return kept.ran_before + (self._record.finished_at or time.time()) - kept.running_since

    @property
    def attempt(self) -> int:
        """The number of restarts of the whole run; 0 at first."""
        return self._record.attempt

    @property
    def spec(self) -> dict[str, Any]:
        """The effective spec in normal form, as plain data; secrets hidden."""
        shown: dict[str, Any] = hidden(self._record.spec)
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
    def nodes(self) -> list[Node]:
        """In rank order, without those of replicas that were removed by scaling."""
        records = self._service.nodes(self.id)
        return [node_from(record) for record in records if record.state != NodeState.SCALED_DOWN]

    @property
    def replicas(self) -> dict[str, int]:
        """Group -> its desired number of replicas."""
        return run_details.replicas(self._record)

    @property
    def network(self) -> str:
        """`shared` with this machine, `cluster` or `isolated`."""
        return str(self._plan.get("network"))

    @property
    def endpoints(self) -> dict[str, str]:
        """The addresses of its cluster by name (`address`, `dashboard`); empty if it has no
        cluster, or the cluster has not started."""
        return run_details.endpoints(self._service.home, self.id)

    @property
    def tls_folder(self) -> Path | None:
        """The folder with `ca.pem`, `cert.pem` and `key.pem`; None if its nodes use no TLS."""
        return run_details.tls_folder(self._service.home, self._record)

    @property
    def processes_per_node(self) -> int:
        return int(self._plan.get("processes_per_node"))

    def group_sizes(self) -> dict[str, int]:
        """Group -> its maximum of nodes, in rank order."""
        return self._plan.group_sizes()

    def limits(self) -> dict[str, str]:
        """Group -> what this machine gives its nodes, for groups with resources or a shape."""
        return run_details.limits(self._record)

    @property
    def outputs(self) -> list[Path]:
        """Executed notebooks, and the files that its programs wrote to $MUSTER_OUTPUTS."""
        return run_details.outputs(self._service.home, self.id)

    # Why

    def why(self) -> list[str]:
        """Why it is in its state; the most important sentence first."""
        lines = [redacted(line) for line in run_details.why(self._service.context, self._record)]
        return [*lines[:1], *filter(None, [self.hint]), *lines[1:]]

    @property
    def notes(self) -> list[str]:
        """Settings that the engine does not apply, and why; nodes that exceed their disk."""
        notes = list(self._record.notes)
        if self._plan.limits_disk():
            from muster.describe.events import sentence

            found = [entry for entry in self._service.events(self.id) if entry.kind == "disk"]
            notes += dict.fromkeys(sentence(entry.kind, entry.data) for entry in found)
        return [redacted(note) for note in notes]

    @property
    def cause(self) -> dict[str, Any] | None:
        """The cause of the run's last failure: rank, group, reason, exit_code, signal, message, at,
        raised_at, and a hint, which is "" for most; None if nothing has failed."""
        first = run_details.lifecycle(self._record).cause
        if first is None:
            return None
        from muster.client.run_json import failure_dict

        return {**failure_dict(first), "hint": redacted(self._hint(first))}

    @property
    def consequences(self) -> list[dict[str, Any]]:
        """The reported failures that followed from the cause."""
        from muster.client.run_json import failure_dict
        from muster.lifecycle import cause

        kept = run_details.lifecycle(self._record)
        return [failure_dict(f) for f in cause.consequences(kept.failures, kept.cause)]

    @property
    def hint(self) -> str:
        """What to do about the failure of a failed run, if known; else ""."""
        if self.state != RunState.FAILED:
            return ""
        first = run_details.lifecycle(self._record).cause
        return redacted(self._hint(first)) if first is not None else ""

    def _hint(self, failure: Failure) -> str:
        left = self._plan.unsent_files()
        if left is None:
            return ""
        from muster.describe.missing_files import hint_for

        return hint_for(left, failure.message, self.id)

    @property
    def _plan(self) -> StoredPlan:
        return StoredPlan(self._record)

    # Operations

    def refresh(self) -> JobRun:
        """Read the run again. Returns itself."""
        self._record = self._service.run(self.id)
        return self

    def wait(self, timeout: float | None = None) -> JobRun:
        """Wait until the run has ended or is suspended. Returns itself.

        Raises TimeoutError after `timeout` seconds (default: never). Warns if the run's supervisor
        is stopped or hangs (`muster.errors.NotAnswering`), and if the disk is full (`LowSpace`).
        """
        self._record = self._service.wait(self.id, timeout)
        return self

    def cancel(self, why: str = "canceled by user", *, force: bool = False) -> JobRun:
        """Request the run's end; `wait` returns when none of its processes is left. Returns itself.

        No effect on a run that has ended. force: kill all its processes at once, with a supervisor
        that may not answer any more. Raises EngineError if that fails.
        """
        self._service.cancel(self.id, why, force=force)
        return self.refresh()

    def suspend(self, why: str = "suspended by user") -> JobRun:
        """Request the run's suspension; `wait` returns when none of its processes is left.

        With `checkpoint`, nodes are signaled to save their state first. No effect on a suspended
        run. Returns itself. Raises InvalidInput if the run has ended or is being canceled.
        """
        self._record = self._service.suspend(self.id, why)
        return self

    def suspend_problem(self) -> Problem | None:
        """Why the run cannot be suspended; None if it can be, or is suspended already."""
        from muster.service.requests import suspend_problem

        return suspend_problem(self._record)

    def not_to_suspend(self) -> Problem | None:
        """Deprecated name of `suspend_problem`."""
        text = "JobRun.not_to_suspend is now called JobRun.suspend_problem"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return self.suspend_problem()

    def resume(self, **overrides: Any) -> JobRun:
        """Resume a suspended run. Returns itself.

        overrides: as for `muster.run`, except those that change the number of nodes. Raises
        InvalidInput for others, and if the run is not suspended.
        """
        from muster.spec.overrides import overrides_from_mapping

        return self.resume_with(overrides_from_mapping(overrides) if overrides else None)

    def resume_with(self, overrides: RunOverrides | None) -> JobRun:
        """As `resume`, with decoded overrides."""
        self._record = self._service.resume(self.id, overrides)
        return self

    def overrides(self, changes: Changes) -> RunOverrides:
        """The overrides for `resume_with`, from changes to parts of the run's settings.

        Raises InvalidInput with every problem, and if the run cannot be resumed with them.
        """
        from muster.service.review import review_resume
        from muster.spec.partial_overrides import with_items
        from muster.spec.resolve import spec_from_json

        spec = spec_from_json(self._record.spec)
        changes = with_items(changes, spec)
        overrides = changes.require_valid()
        try:
            self._service.prepare_resume(self._record, overrides, spec=spec)
        except InvalidInput as error:
            raise InvalidInput(*review_resume(spec, changes, error.problems)) from None
        return overrides

    def scale(self, group: str, replicas: int, why: str = "by user") -> JobRun:
        """Request another number of replicas of a group. Returns itself.

        Raises InvalidInput if the group cannot have this number (`max_replicas`), or the run is
        ending.
        """
        self._record = self._service.scale(self.id, group, replicas, why)
        return self

    def delete(self) -> None:
        """Delete a run that has ended, with its output. Raises InvalidInput if it has not."""
        self._service.delete(self.id)

    # Events and logs

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[EventRecord]:
        """The event log after entry number `after`. follow: until the run has ended or is
        suspended."""
        from muster.client.events import entries

        return entries(self._service, self.id, after=after, follow=follow)

    def logs(
        self,
        *,
        follow: bool = False,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
    ) -> Iterator[LogRecord]:
        """Lines of output, merged by time over the nodes. follow: until the run has ended.

        streams: of `stdout`, `stderr` and `service`, Muster's own messages: their records have no
        rank, and are left out where ranks or groups are given. attempt: one attempt, or `all`;
        default: the newest and, with follow, those after it. Raises InvalidInput for parts that
        the run does not have.
        """
        selection = self.selection(
            ranks=ranks, groups=groups, streams=streams, tail=tail, attempt=attempt
        )
        return self._records(selection, follow=follow)

    def _records(self, selection: Selection, *, follow: bool) -> Iterator[LogRecord]:
        for chunk in self.log_chunks(selection, follow=follow):
            yield from records(chunk, chunk.attempt)

    def log_chunks(self, selection: Selection, *, follow: bool = False) -> Iterator[RunChunk]:
        """As `logs`, with many lines of one stream at a time, which is faster."""
        return chunks(self._service, self._record, selection, follow=follow)

    def selection(
        self,
        *,
        ranks: Collection[int] | None = None,
        groups: Collection[str] | None = None,
        streams: Collection[str] | None = None,
        tail: int | None = None,
        attempt: int | Literal["all"] | None = None,
        services: Collection[str] | None = None,
    ) -> Selection:
        """A part of the output; `services`: of the framework's services. Raises InvalidInput for
        parts that the run does not have."""
        selected = Selection(ranks, groups, streams, tail, attempt, services)
        own = self._plan.services_with_output()
        if found := list(problems(selected, self.name, self.group_sizes(), own)):
            raise InvalidInput(*found)
        if isinstance(attempt, int):
            check_attempt(self._service.home, self._record, attempt)
        return selected

    def log_folder(self) -> Path:
        """The folder with the plain log files of the current attempt."""
        return run_details.log_folder(self._service.home, self._record)

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-ready data; times as RFC 3339 text."""
        from muster.client.run_json import run_dict

        return run_dict(self, self._record, self._service.restarts(self.id))

    def __repr__(self) -> str:
        return f"<JobRun {self.name} {self.id} {self.state}>"
