"""What a store keeps, as typed records. Times are epoch seconds, UTC."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict, TypeVar

import msgspec
from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from muster.errors import InvalidInput, Problem, StoreError
from muster.identity import DEFAULT_PROJECT, Owner
from muster.lifecycle.states import JobState, RunState
from muster.type_info import compile_type

T = TypeVar("T", bound=Struct)

#: The latest time that can be formatted: the end of the year 9999 (epoch seconds).
LATEST_TIME = 253402300799.0
#: Epoch seconds, UTC.
Moment = Annotated[float, Meta(ge=0, le=LATEST_TIME)]


def readable_time(value: object) -> float | None:
    """The value as a time if it is one; for values of damaged rows."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= LATEST_TIME else None


def decoded(text: Any) -> Any:
    """The value of a JSON column. Raises ValueError if it is not JSON."""
    if text is None:
        raise ValueError("it is missing")
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        pass  # what only the other one reads, such as NaN, or a reason why it is not valid
    try:
        return json.loads(text)
    except TypeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class CorruptRecord(StoreError):  # noqa: N818
    """A row of the store is corrupt; the other rows can be read."""


class LeaseHeld(StoreError):  # noqa: N818
    """Another process has the lease of a run."""

    def __init__(self, lease: Lease) -> None:
        super().__init__(f"run {lease.run_id} is driven by another process, on {lease.host}")
        self.lease = lease


class LeaseLost(StoreError):  # noqa: N818
    """A process that drives a run has lost its lease to another one, and can record nothing
    more."""

    def __init__(self, lease: Lease, now: Lease | None, why: str = "") -> None:
        """now: the lease of the process that has it now, if that is known. why: if it may be that
        nobody has taken it."""
        by = "another process" if now is None else f"a process on {now.host}"
        reason = f"the lease is lost, {why}" if why else f"{by} drives run {lease.run_id} now"
        super().__init__(f"{reason}: this one records nothing more of it")
        self.lease = lease


def read_record(kind: type[T], values: Mapping[str, Any], what: str, hint: str) -> T:
    """Convert a row to a record. what: names the row in the message; hint: what to do about a
    corrupt row. Raises CorruptRecord."""
    compile_type(kind)
    try:
        return convert(values, kind)
    except ValidationError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {hint}") from None


def read_entry(kind: type[T], values: Mapping[str, Any], what: str, hint: str) -> T:
    """Convert a row of an event log, whose `data` is JSON; otherwise as `read_record`."""
    try:
        data = decoded(values["data"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {hint}") from None
    return read_record(kind, {**values, "data": data}, what, hint)


class JobRecord(Struct, frozen=True):
    """A Job."""

    id: str
    name: str
    version: int
    content_hash: str
    """Hash of spec and code: submitting the same content again uses the same Job. The Job's id, if
    the Job must not be reused."""
    spec: Mapping[str, Any]
    artifact_sha256: str | None
    artifact_name: str | None
    description: str
    tags: Mapping[str, str]
    created_at: Moment
    updated_at: Moment
    display_name: str | None = None
    created_by: str = ""
    state: str = JobState.ACTIVE
    project: str = DEFAULT_PROJECT
    oci_job: str = ""
    """The OCID of the job of the OCI API that it is recorded for; "" if it is of no such job."""

    @property
    def handle(self) -> str:
        """The name with the version."""
        return f"{self.name}@{self.version}"

    def check_active(self) -> None:
        """Raises InvalidInput if the Job is deleted."""
        if self.state == JobState.DELETED:
            hint = "run its file again, which makes a new one"
            raise InvalidInput(Problem("", f"job {self.handle} is deleted", hint))


class Scale(TypedDict):
    """A request to scale a group."""

    replicas: int
    why: str


class RunRecord(Struct, frozen=True):
    """A JobRun."""

    id: str
    name: str
    number: int
    job_id: str
    job_name: str
    state: str
    details: str
    engine: str
    attempt: int
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    exit_code: int | None
    node_count: int
    spec: Mapping[str, Any]
    """The effective spec."""
    origins: Mapping[str, str]
    """Where each setting comes from."""
    overrides: Mapping[str, Any]
    plan: Mapping[str, Any]
    lifecycle: Mapping[str, Any]
    notes: list[str]
    cancel_requested_at: Moment | None
    cancel_reason: str | None
    suspend_requested_at: Moment | None = None
    suspend_reason: str | None = None
    expires_at: Moment | None = None
    scale_requested: Mapping[str, Scale] = {}
    """The last request of each group."""
    display_name: str | None = None
    created_by: str = ""
    tags: Mapping[str, str] = {}
    project: str = DEFAULT_PROJECT


def suspend_problem(run: RunRecord) -> Problem | None:
    """Why a run cannot be suspended; None if it can be, or is suspended already."""
    if RunState(run.state).terminal:
        return Problem("", f"{run.name} has ended: it is {run.state}, and cannot be suspended")
    if run.cancel_requested_at is not None:
        return Problem("", f"{run.name} is being canceled, and cannot be suspended")
    return None


class Lease(Struct, frozen=True):
    """The right of one process to drive a run."""

    run_id: str
    owner: str
    """`Owner.id`."""
    host: str
    """`Owner.host`, for messages and to tell hosts apart."""
    boot: str
    """`Owner.boot`"""
    token: Annotated[int, Meta(ge=1, le=2**62)]
    """Grows by one with each owner of the run's lease: what a former owner records is refused."""
    expires_at: Moment | None = None
    """None: the owner has it while it lives."""

    @classmethod
    def first(cls, run_id: str, owner: Owner, expires_at: float | None = None) -> Lease:
        """The first lease of a run."""
        return cls(run_id, owner.id, owner.host, owner.boot, 1, expires_at)


class RunFilter(Struct, frozen=True):
    """Which runs to list, newest first."""

    states: Collection[RunState] | None = None
    job: str | None = None
    """A name (all versions) or an id."""
    since: float | None = None
    """Created at this time or later (epoch seconds)."""
    tags: Mapping[str, str | None] = {}
    """Required tags; None matches any value."""
    limit: int | None = None
    before: int | None = None
    """Only runs older than the one with this `RunSummary.position`: the next page of a list."""


#: The fields of `RunRecord` that a step may change: those of its status, those that are cleared
#: when a request is served, and those that overrides change when the run is resumed.
CHANGEABLE = frozenset(
    (
        *("state", "details", "attempt", "started_at", "finished_at", "exit_code", "node_count"),
        *("lifecycle", "expires_at", "suspend_requested_at", "suspend_reason"),
        *("spec", "origins", "plan", "notes", "tags", "display_name"),
    )
)

#: An entry of an event log that is to be recorded: its kind and its data.
NewEntry = tuple[str, Mapping[str, Any]]


class RunStep(Struct, frozen=True):
    """What is recorded of one step of a run; see `Runs.save`. Raises ValueError for changes that no
    step makes."""

    lease: Lease
    """Of the process that drives the run."""
    changes: Mapping[str, Any]
    """Fields of `RunRecord` by name, of those that are `CHANGEABLE`."""
    nodes: Sequence[NodeRecord]
    """Those that may have no record yet, as whole records. They replace what there is."""
    entries: Sequence[NewEntry]
    """Of the event log. They get the next numbers and the time `now`, or that of the newest entry
    if that is later."""
    now: float
    node_changes: Sequence[NodeChange] = ()
    """Of nodes that have a record."""

    def __post_init__(self) -> None:
        if not CHANGEABLE.issuperset(self.changes):
            fixed = ", ".join(sorted(set(self.changes) - CHANGEABLE))
            raise ValueError(f"a step of run {self.lease.run_id} cannot change {fixed}")
        if (attempt := self.changes.get("attempt", 0)) < 0:
            raise ValueError(f"a step of run {self.lease.run_id} cannot start attempt {attempt}")


class PendingRequests(NamedTuple):
    """The pending requests of a run."""

    cancel: str = ""  # the reason; "" if there is no request
    suspend: str = ""  # the reason; "" if there is no request
    scale: Mapping[str, Scale] = {}  # by group


#: Keys in the JSON of `RunRecord.lifecycle` where they differ from the names of the fields; see
#: `run_columns.Lifecycle`.
LIFECYCLE_KEYS = {
    "last_incarnation": "restarts",
    "cause": "failure",
    "attempt_started_at": "attempt_at",
    "running_since": "going_since",
    "ran_before": "ran",
    "groups_started": "begun",
}


class RunSummary(Struct, frozen=True):
    """The columns of a run that lists show, and of its `lifecycle` those of `SUMMARY_LIFECYCLE`."""

    id: str
    name: str
    job_id: str
    job_name: str
    state: str
    details: str
    engine: str
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    exit_code: int | None
    node_count: int
    display_name: str | None = None
    created_by: str = ""
    tags: Mapping[str, str] = {}
    project: str = DEFAULT_PROJECT
    position: int = 0
    """Grows from run to run, in the order in which they were recorded."""
    ran_before: float | None = None
    """Seconds it ran before it was last resumed; None: 0."""
    running_since: Moment | None = None
    """When it started to run, or was last resumed; None: it does not run, or never did."""
    attempt: int = 0

    def seconds(self, now: float) -> float | None:
        """How long it has run, without the time it was suspended; None before it starts."""
        if self.started_at is None:
            return None
        return running_time(self.ran_before or 0.0, self.running_since, self.finished_at or now)


#: The fields of `RunSummary` that are in the JSON of `RunRecord.lifecycle` -> their keys there.
SUMMARY_LIFECYCLE = {name: LIFECYCLE_KEYS[name] for name in ("ran_before", "running_since")}


def running_time(before: float, since: float | None, until: float) -> float:
    """Seconds that a run has run. before: until it was last resumed. since: when it was resumed or
    started; None: it does not run, or never did."""
    return before if since is None else before + until - since


class NodeRecord(Struct, frozen=True, gc=False):
    """A node of a run."""

    rank: int
    group: str
    replica: int
    index: int
    node_id: str
    fqdn: str
    address: str
    state: str
    exit_code: int | None
    started_at: Moment | None
    finished_at: Moment | None
    signal: int = 0
    incarnation: int = 0
    intent: str = ""
    """JSON of `control.persist.Intent`."""
    metrics: str = ""
    """JSON that the program left as its results; "" if nothing. A record without any keeps those
    that its incarnation has in the store."""

    @property
    def unreachable_since(self) -> float | None:
        """See `NodeStatus.unreachable_since`; None also in a damaged row."""
        return readable_time(self._kept("unreachable_since"))

    @property
    def unreachable_why(self) -> str:
        """See `NodeStatus.unreachable_why`; "" also in a damaged row."""
        return str(self._kept("unreachable_why") or "")

    @property
    def waits_for(self) -> str:
        """See `NodeStatus.waits_for`; "" also in a damaged row."""
        return str(self._kept("waits_for") or "")

    @property
    def host(self) -> str:
        """See `NodeStatus.host`; "" also in a damaged row."""
        return str(self._kept("host") or "")

    @property
    def host_id(self) -> str:
        """See `NodeStatus.host_id`; "" also in a damaged row."""
        return str(self._kept("host_id") or "")

    @property
    def known_address(self) -> str:
        """Its address: where its host has it, else as planned."""
        return str(self._kept("address") or self.address)

    def _kept(self, name: str) -> Any:
        if name not in self.intent:  # nearly all have neither
            return None
        try:
            return decoded(self.intent).get(name)
        except (ValueError, AttributeError):
            return None

    @property
    def has_started(self) -> bool:
        """Whether it was ever handed to the engine; not of one that was stopped before."""
        if self.started_at is not None or self.state not in ("PENDING", "STOPPED"):
            return self.state != "SCALED_DOWN"
        return self.state == "PENDING" and self.incarnation > 0


class NodeChange(Struct, frozen=True):
    """What nodes have become. Of thousands that start or end together, most become the same."""

    ranks: Sequence[range]
    state: str
    exit_code: int | None
    started_at: Moment | None
    finished_at: Moment | None
    signal: int
    incarnation: int
    intent: str
    metrics: str
    """As those of `NodeRecord`."""

    def applied_to(self, record: NodeRecord) -> NodeRecord:
        """The record of a node with this change."""
        changed = asdict(self)
        del changed["ranks"]
        if not self.metrics and self.incarnation == record.incarnation:
            del changed["metrics"]
        return replace(record, **changed)


class NodeFilter(Struct, frozen=True):
    """Which nodes of a run to list."""

    ranks: Collection[int] | None = None
    groups: Collection[str] | None = None
    states: Collection[str] | None = None
    after: int = -1
    """Only nodes with a higher rank: the next page of a list."""
    before: int | None = None
    """Only nodes with a lower rank: the next page of a list from its end."""
    limit: int | None = None
    last: bool = False
    """With a limit: the last nodes instead of the first, in rank order, too."""
    started: bool = False
    """Only nodes that have started; see `NodeRecord.has_started`."""


class JobEventRecord(Struct, frozen=True):
    """An entry of a Job's event log."""

    job_id: str
    seq: int
    """From 1, within the Job."""
    time: Moment
    kind: str
    """created, edited or deleted."""
    by: str
    """The user; "" in entries of versions that did not record it."""
    data: Mapping[str, Any]


class EventRecord(Struct, frozen=True):
    """An entry of a run's event log."""

    run_id: str
    seq: int
    """From 1, within the run."""
    time: Moment
    kind: str
    data: Mapping[str, Any]

    def attempt_started(self) -> int | None:
        """The number of the attempt that starts with this entry; None if none does. Raises
        CorruptRecord."""
        if self.kind not in ("attempt", "resumed"):
            return None
        number = self.data.get("attempt")
        if not isinstance(number, int):
            what, hint = event_and_hint(self.run_id, self.seq)
            raise CorruptRecord(f"{what} is corrupt: its attempt is {number!r}; {hint}")
        return number


def event_and_hint(run_id: str, seq: int) -> tuple[str, str]:
    """An entry of a run's event log in a message, and what to do if it is corrupt."""
    hint = f"`muster events {run_id} --after {seq}` shows those after it"
    return f"event {seq} of the run {run_id}", hint
