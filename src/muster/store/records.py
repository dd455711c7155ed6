"""Rows, typed. Times are epoch seconds, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

from msgspec import Struct, ValidationError, convert

from muster.errors import StoreError

T = TypeVar("T", bound=Struct)


class CorruptRecord(StoreError):  # noqa: N818
    """A row of the store cannot be read; the others can."""


def read_record(kind: type[T], values: Mapping[str, Any], what: str, way_out: str) -> T:
    """A row as a record. what: which row, for the message; way_out: what to do about it. Raises
    CorruptRecord."""
    try:
        return convert(values, kind)
    except ValidationError as error:
        raise CorruptRecord(f"{what} is corrupt: {error}; {way_out}") from None


class JobRecord(Struct, frozen=True):
    """A Job. content_hash: of what it was made from; the same content is the same Job."""

    id: str
    name: str
    version: int
    content_hash: str
    spec: Mapping[str, Any]
    artifact_sha256: str | None
    artifact_name: str | None
    description: str
    tags: Mapping[str, str]
    created_at: float
    updated_at: float


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
    created_at: float
    started_at: float | None
    finished_at: float | None
    exit_code: int | None
    node_count: int
    spec: Mapping[str, Any]
    origins: Mapping[str, str]
    overrides: Mapping[str, Any]
    plan: Mapping[str, Any]
    lifecycle: Mapping[str, Any]
    notes: list[str]
    cancel_requested_at: float | None
    cancel_reason: str | None
    suspend_requested_at: float | None = None
    suspend_reason: str | None = None
    expires_at: float | None = None
    scale_requested: Mapping[str, Scale] = {}


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
    created_at: float
    started_at: float | None
    finished_at: float | None
    exit_code: int | None
    node_count: int


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
    started_at: float | None
    finished_at: float | None
    signal: int = 0
    incarnation: int = 0
    intent: str = ""


class EventRecord(Struct, frozen=True):
    """An entry of a run's event log; seq counts from 1 within the run."""

    run_id: str
    seq: int
    time: float
    kind: str
    data: Mapping[str, Any]
