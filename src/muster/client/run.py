"""A run, as an object."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from muster.client.logs import Selection, check_attempt, chunks
from muster.client.messages import RunChunk
from muster.client.node import Node, node_from
from muster.client.times import time_text
from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import NodeState, RunState
from muster.node.files import read_regular
from muster.secrets import hidden, redacted
from muster.service import Service, not_to_suspend
from muster.storage.log_reader import LogRecord, records
from muster.store.records import EventRecord, RunRecord

if TYPE_CHECKING:
    from muster.control.persist import Lifecycle
    from muster.lifecycle.status import Failure
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes

_STREAMS = ("stdout", "stderr", "service")
_NO_OWN = "none of its services has output of its own: all that there is comes without --service"


class Setting(Struct, frozen=True):
    """One effective setting of a run. origin: `job`, `override` or `default`."""

    path: str
    value: Any
    origin: str


class JobRun:
    """One execution of a Job. What it shows is from the last `refresh` (or `wait`)."""

    def __init__(self, service: Service, record: RunRecord) -> None:
        self._service = service
        self._record = record

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def name(self) -> str:
        """`<job name>-<number>`."""
        return self._record.name

    @property
    def display_name(self) -> str | None:
        """What people call this run (`run_name`); other runs may be called so, too."""
        return self._record.display_name

    @property
    def tags(self) -> dict[str, str]:
        """The labels of its Job, and its own."""
        shown: dict[str, str] = hidden(dict(self._record.tags))
        return shown

    @property
    def created_by(self) -> str:
        """The user who started it; "" where that is not known."""
        return self._record.created_by

    @property
    def number(self) -> int:
        """Counts the runs of that job name, from 1."""
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
        """Why it is in this state, where the state alone does not say."""
        return redacted(self._record.details)

    @property
    def exit_code(self) -> int | None:
        """0, or that of the first node that failed; None where there is none."""
        return self._record.exit_code

    @property
    def started(self) -> float | None:
        """Epoch seconds at which it first started; None before that."""
        return self._record.started_at

    @property
    def seconds(self) -> float | None:
        """How long it has run, or ran, less what it was suspended; None before it has started."""
        if self._record.started_at is None:
            return None
        kept = self._lifecycle()
        if kept.going_since is None:
            return kept.ran
        return kept.ran + (self._record.finished_at or time.time()) - kept.going_since

    @property
    def spec(self) -> dict[str, Any]:
        """What it runs, in normal form, as plain data; secrets hidden."""
        shown: dict[str, Any] = hidden(self._record.spec)
        return shown

    @property
    def network(self) -> str:
        """`shared` with this machine, `cluster` or `isolated`."""
        return str(self._planned("network"))

    @property
    def endpoints(self) -> dict[str, str]:
        """Where its cluster is reached, by name (`address`, `dashboard`); empty if it has none, or
        has not begun."""
        try:
            text = read_regular(self._service.home.run_dir(self.id).endpoints)
            found: dict[str, str] = json.loads(text)
        except (OSError, ValueError):  # not there yet, or not what we have written
            return {}
        return found

    @property
    def tls_folder(self) -> Path | None:
        """The folder with `ca.pem`, `cert.pem` and `key.pem`; None if its nodes use none."""
        folder = self._service.home.run_dir(self.id).tls
        return folder if self._record.plan.get("tls") else None

    @property
    def notes(self) -> list[str]:
        """What the engine does not do as asked, and why; which nodes use more than they may."""
        notes = list(self._record.notes)
        groups = self._planned("groups")
        with self._reading("plan"):
            disk = any(group["resources"].get("disk") is not None for group in groups)
        if disk:
            from muster.lifecycle.sentences import sentence

            found = [entry for entry in self._service.events(self.id) if entry.kind == "disk"]
            notes += dict.fromkeys(sentence(entry.kind, entry.data) for entry in found)
        return [redacted(note) for note in notes]

    @property
    def cause(self) -> dict[str, Any] | None:
        """What the last failure of the run came from: rank, group, reason, exit_code, signal,
        message, at, and a hint, "" for most; None if nothing has failed."""
        first = self._lifecycle().cause
        if first is None:
            return None
        return {**failure_dict(first), "hint": redacted(self._hint(first))}

    @property
    def consequences(self) -> list[dict[str, Any]]:
        """The failures that followed from it, as far as they were told."""
        from muster.lifecycle import cause

        kept = self._lifecycle()
        return [failure_dict(f) for f in cause.consequences(kept.failures, kept.cause)]

    @property
    def hint(self) -> str:
        """What to do about what it failed of, where that is known; else ""."""
        first = self._lifecycle().cause if self.state == RunState.FAILED else None
        return redacted(self._hint(first)) if first is not None else ""

    def _hint(self, failure: Failure) -> str:
        left = (self._planned("artifact") or {}).get("left_behind")
        if not left:
            return ""
        from msgspec import convert

        from muster.client.missing import hint_for
        from muster.plan.model import LeftBehind

        return hint_for(convert(left, LeftBehind), failure.message, self.id)

    def _lifecycle(self) -> Lifecycle:
        from muster.control.persist import lifecycle_of

        return lifecycle_of(self._record)

    @property
    def nodes(self) -> list[Node]:
        """In rank order; without those of replicas that are not wanted."""
        records = self._service.nodes(self.id)
        return [node_from(record) for record in records if record.state != NodeState.PARKED]

    def refresh(self) -> JobRun:
        """Look again. Returns itself."""
        self._record = self._service.run(self.id)
        return self

    def wait(self, timeout: float | None = None) -> JobRun:
        """Wait until the run has ended, or is suspended. Returns itself.

        Raises TimeoutError after `timeout` seconds (default: never). Warns if the run's supervisor
        is stopped, or hangs (`muster.errors.NotAnswering`), and if the disk is full (`LowSpace`).
        """
        self._record = self._service.wait(self.id, timeout)
        return self

    def cancel(self, why: str = "canceled by its owner", *, force: bool = False) -> JobRun:
        """End the run; `wait` tells when nothing of it is left. Nothing if it has ended.

        force: end all its processes at once, its supervisor included, which may not answer any
        more. Raises EngineError if that cannot be done.
        """
        self._service.cancel(self.id, why, force=force)
        return self.refresh()

    def suspend(self, why: str = "suspended by its owner") -> JobRun:
        """Pause the run; `wait` tells when nothing of it is left. Its nodes are told to save what
        they have first, if the spec says how. Nothing if it is suspended. Raises InvalidInput if
        it has ended, or is being canceled."""
        self._record = self._service.suspend(self.id, why)
        return self

    def not_to_suspend(self) -> Problem | None:
        """Why it cannot be suspended any more; None if it can, or is."""
        return not_to_suspend(self._record)

    def resume(self, **overrides: Any) -> JobRun:
        """Have a suspended run go on. overrides: whatever a run may change, as for `muster.run`,
        but which nodes it has. Raises InvalidInput if that cannot be, or it is not suspended.
        """
        from muster.spec.overrides import overrides_from_mapping

        return self.resume_with(overrides_from_mapping(overrides) if overrides else None)

    def resume_with(self, overrides: RunOverrides | None) -> JobRun:
        """As `resume`, with overrides that were read already."""
        self._record = self._service.resume(self.id, overrides)
        return self

    def overrides(self, changes: Changes) -> RunOverrides:
        """What `resume_with` takes, of changes that may be of parts of what the run has. Raises
        InvalidInput with every problem, and if the run cannot be resumed so."""
        from muster.review import review_resume
        from muster.spec.items import with_items
        from muster.spec.resolve import spec_from_json

        spec = spec_from_json(self._record.spec)
        changes = with_items(changes, spec)
        overrides = changes.whole()
        try:
            self._service.redraft(self._record, overrides)
        except InvalidInput as error:
            raise InvalidInput(*review_resume(spec, changes, error.problems)) from None
        return overrides

    def scale(self, group: str, replicas: int, why: str = "by its owner") -> JobRun:
        """Have more replicas of a group, or fewer; they start, or end, soon after. Raises
        InvalidInput if there cannot be so many (`max_replicas`), or the run is ending."""
        self._record = self._service.scale(self.id, group, replicas, why)
        return self

    @property
    def replicas(self) -> dict[str, int]:
        """How many replicas each group is to have."""
        from muster.control.persist import plan_of
        from muster.control.scale import replicas

        return dict(replicas(self._record, plan_of(self._record)))

    def delete(self) -> None:
        """Forget a run that has ended, with its output. Raises InvalidInput if it has not."""
        self._service.delete(self.id)

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[EventRecord]:
        """What happened to it, after entry number `after`. follow: until it has ended."""
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

        streams: of `stdout`, `stderr` and `service`, which is what Muster itself says of the run:
        a record without a rank, left out where ranks or groups are asked for. attempt: of which;
        default: of the newest and, with follow, of those that come. Raises InvalidInput for what
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
        """As `logs`, but many lines of one stream at a time: for those in a hurry."""
        return chunks(self._service, self._record, selection, follow=follow)

    def why(self) -> list[str]:
        """Why it is in the state it is in; the most important sentence first."""
        from muster.client.explain import why

        restarts = self._service.restarts(self.id)
        nodes = self._service.nodes(self.id)
        lines = [redacted(line) for line in why(self._record, nodes, restarts)]
        return [*lines[:1], *filter(None, [self.hint]), *lines[1:]]

    def settings(self) -> list[Setting]:
        """Every effective setting, and where it came from. Secrets in `env` are hidden."""
        from muster.spec.resolve import setting_value

        # what the spec leaves to the framework was settled by the plan
        network = self._planned("network")
        with self._reading("spec or origins"):
            spec = hidden({**self._record.spec, "network": network})
            return [Setting(p, setting_value(spec, p), o) for p, o in self._record.origins.items()]

    @property
    def attempt(self) -> int:
        """How often it was started again as a whole; 0 the first time."""
        return self._record.attempt

    @property
    def processes_per_node(self) -> int:
        return int(self._planned("processes_per_node"))

    def group_sizes(self) -> dict[str, int]:
        """Group -> the most nodes it may ever have, in rank order."""
        groups = self._planned("groups")
        with self._reading("plan"):
            return {g["name"]: g["replicas"] * g["nodes"] for g in groups}

    def limits(self) -> dict[str, str]:
        """Of each group that asks for resources or a shape: what this machine gives its nodes."""
        from msgspec import convert

        from muster.engines.local.machine import held_to, this_machine
        from muster.plan.model import ResourcePlan

        groups, machine = self._planned("groups"), this_machine()
        with self._reading("plan"):
            told = {
                g["name"]: held_to(convert(g["resources"], ResourcePlan), machine) for g in groups
            }
        return {name: text for name, text in told.items() if text}

    def _planned(self, name: str) -> Any:
        """A part of the plan as it is stored: decoding all of it takes long for many nodes."""
        with self._reading("plan"):
            return self._record.plan[name]

    @contextmanager
    def _reading(self, column: str) -> Iterator[None]:
        """Says so where a column of the record is not what Muster writes. Raises CorruptRecord."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            from muster.control.persist import corrupt

            raise corrupt(self._record, f"{column}: {error!r}") from None

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
        """Some of the output; of the framework's services with `services`. Raises InvalidInput for
        what the run does not have."""
        sizes = self.group_sizes()
        last = sum(sizes.values()) - 1
        own = self._services_with_output()
        asked: list[tuple[str, Collection[Any], Collection[Any], str]] = [
            ("rank", ranks or (), range(last + 1), f"ranks are 0 to {last}"),
            ("group", groups or (), sizes, f"there are: {', '.join(sizes)}"),
            ("stream", streams or (), _STREAMS, f"there are: {', '.join(_STREAMS)}"),
            ("service", services or (), own, f"there are: {', '.join(own)}" if own else _NO_OWN),
        ]
        problems = []
        for what, wanted, known, hint in asked:
            wrong = [str(one) for one in wanted if one not in known]
            if wrong:
                text = f"{self.name} has no {what} {', '.join(wrong)}"
                problems.append(Problem(what, text, hint))
        if streams and {*streams} == {"service"} and (ranks or groups or services):
            text = "what the service says of a run comes from none of its nodes"
            problems.append(Problem("stream", text, "ask for it without ranks, groups or services"))
        if tail is not None and tail < 0:
            problems.append(Problem("tail", f"must be at least 0, not {tail}"))
        if problems:
            raise InvalidInput(*problems)
        if isinstance(attempt, int):
            check_attempt(self._service.home, self._record, attempt)
        return Selection(ranks, groups, streams, tail, attempt, services)

    def _services_with_output(self) -> list[str]:
        with self._reading("plan"):
            found = {
                service["name"]: None
                for group in self._planned("groups")
                for service in group.get("role", {}).get("services", ())
                if service["output"] == "own"
            }
        return [*found, "all"] if found else []

    def log_folder(self) -> Path:
        """Where the plain log files are."""
        return self._service.home.run_dir(self.id).logs(self._record.attempt).resolve()

    @property
    def outputs(self) -> list[Path]:
        """What its programs left for its owner: executed notebooks, and whatever they have put
        below $MUSTER_OUTPUTS themselves."""
        folder = self._service.home.run_dir(self.id).outputs
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON-ready data; times as RFC 3339 text."""
        record = self._record
        return {
            "id": record.id,
            "name": record.name,
            "display_name": record.display_name,
            "job_id": record.job_id,
            "job_name": record.job_name,
            "state": str(record.state),
            "details": self.details,
            "engine": record.engine,
            "attempt": record.attempt,
            "tags": self.tags,
            "created_by": record.created_by,
            "created_at": time_text(record.created_at),
            "started_at": time_text(record.started_at),
            "finished_at": time_text(record.finished_at),
            "exit_code": record.exit_code,
            "restarts": self._service.restarts(self.id),
            "cause": self.cause,
            "consequences": self.consequences,
            "notes": self.notes,
            "replicas": self.replicas,
            "endpoints": {} if self.done else self.endpoints,
            "outputs": [str(path) for path in self.outputs],
            "nodes": [node.to_dict() for node in self.nodes],
        }

    def __repr__(self) -> str:
        return f"<JobRun {self.name} {self.id} {self.state}>"


def failure_dict(failure: Failure) -> dict[str, Any]:
    """A failure as JSON-ready data."""
    return {
        "rank": failure.rank,
        "group": failure.group,
        "reason": str(failure.reason),
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "message": redacted(failure.message),
        "at": time_text(failure.at),
        "raised_at": time_text(failure.raised_at),
    }


def record_dict(record: LogRecord) -> dict[str, Any]:
    """A log record as JSON-ready data."""
    return {
        "time": time_text(record.time),
        "rank": record.rank,
        "group": record.group,
        "node_id": record.node_id,
        "attempt": record.attempt,
        "stream": record.stream,
        "message": record.message,
        "local_rank": record.local_rank,
        "service": record.service,
    }
