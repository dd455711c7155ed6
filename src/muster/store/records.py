"""Rows, typed. Times are epoch seconds, UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

from muster.errors import StoreError
from muster.lifecycle.states import JobState

if TYPE_CHECKING:
    from muster.store.database import Row

T = TypeVar("T", bound=Struct)

#: The last that can be shown: the end of the year 9999.
_LAST = 253402300799.0
#: Epoch seconds, UTC.
Moment = Annotated[float, Meta(ge=0, le=_LAST)]


def readable_time(value: object) -> float | None:
    """The time that a damaged row holds; None if it holds none."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= _LAST else None


def decoded(text: Any) -> Any:
    """What a column of JSON holds. Raises ValueError if it holds none."""
    if text is None:
        raise ValueError("it is missing")
    try:
        return json.loads(text)
    except TypeError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class CorruptRecord(StoreError):  # noqa: N818
    """A row of the store cannot be read; the others can."""


def read_record(kind: type[T], values: Mapping[str, Any], what: str, way_out: str) -> T:
    """A row as a record. what: which row, for the message; way_out: what to do about it. Raises
    CorruptRecord."""
    try:
        return convert(values, kind)
    except ValidationError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {way_out}") from None


def read_entry(kind: type[T], row: Row, what: str, way_out: str) -> T:
    """As `read_record`, of a row of an event log: what its `data` holds is JSON."""
    try:
        data = decoded(row["data"])
    except ValueError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {way_out}") from None
    return read_record(kind, {**dict(row), "data": data}, what, way_out)


class JobRecord(Struct, frozen=True):
    """A Job. content_hash: of what it was made from, and the same content is the same Job; its id,
    which no content has, if it is to share its runs with nobody."""

    id: str
    name: str
    version: int
    content_hash: str
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

    @property
    def handle(self) -> str:
        """What names just this version."""
        return f"{self.name}@{self.version}"


class Scale(TypedDict):
    """So many replicas of a group are wanted, and why."""

    replicas: int
    why: str


class RunRecord(Struct, frozen=True):
    """A JobRun. spec: what it runs, effective; origins: where each setting came from.
    scale_requested: by group; what was asked last."""

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
    origins: Mapping[str, str]
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
    display_name: str | None = None
    created_by: str = ""
    tags: Mapping[str, str] = {}


class Asked(NamedTuple):
    """What people want of a run. cancel, suspend: why; "" if nobody does. scale: by group."""

    cancel: str = ""
    suspend: str = ""
    scale: Mapping[str, Scale] = {}


class RunSummary(Struct, frozen=True):
    """What a list shows of a run."""

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


class NodeRecord(Struct, frozen=True):
    """A node of a run. intent: what is to become of it, as `control.persist` writes it."""

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


class JobEventRecord(Struct, frozen=True):
    """An entry of a Job's event log; seq counts from 1 within the Job. kind: created, edited or
    deleted. by: who did it, "" where nobody knows any more."""

    job_id: str
    seq: int
    time: Moment
    kind: str
    by: str
    data: Mapping[str, Any]


class EventRecord(Struct, frozen=True):
    """An entry of a run's event log; seq counts from 1 within the run."""

    run_id: str
    seq: int
    time: Moment
    kind: str
    data: Mapping[str, Any]
