"""Record in the audit log what callers do, before it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.caller import NotPermitted, Variables
from muster.errors import Forbidden, MusterError

if TYPE_CHECKING:
    from muster.caller import Authority, Caller
    from muster.permissions import Decision
    from muster.store.account_records import AuditEntry
    from muster.store.protocols.audit import Audit

#: Of an entry's attributes: OCI's name of the operation.
OPERATION = "request.operation"
#: Characters of an entry's texts: callers choose some of them.
_LONGEST = 1000
#: Seconds after which a read of the same kind is recorded again.
_READ_EVERY = 3600.0
#: Kinds of reads that are remembered.
_MOST_READS = 10_000


class Origin(Struct, frozen=True):
    """Where a request comes from."""

    #: "" for the machine itself.
    address: str = ""
    request_id: str = ""


def entry_of(
    caller: Caller, origin: Origin, now: float, action: str, object: str = "", *, project: str = ""
) -> AuditEntry:
    """The entry for what a caller is about to do. action: `runs.start`; object: the name or id of
    what it is done to."""
    from muster.store.account_records import AuditEntry

    return AuditEntry(
        time=now,
        user=_cleaned(caller.user),
        action=action,
        object=_cleaned(object),
        project=_cleaned(project),
        token_id=caller.token_id,
        run=caller.run_id,
        address=_cleaned(origin.address),
        request_id=_cleaned(origin.request_id),
        attributes=operation_of(caller.authority),
    )


def operation_of(authority: Authority) -> dict[str, str]:
    """OCI's name of the operation that is asked for, as the variable that conditions name."""
    return {OPERATION: authority.operation} if authority.operation else {}


def name_of(given: object) -> str:
    """What a method of `MusterAPI` is about to change, by its first argument."""
    from muster.api.notifications import NotificationRequest
    from muster.api.prepared import PreparedRun
    from muster.api.schedules import ScheduleRequest
    from muster.api.submissions import JobSource, RerunSource, RetrySource, SpecSource, StartRequest
    from muster.store.records import JobRecord

    match given:
        case str():
            return given
        case JobRecord():
            return given.name
        case PreparedRun():
            return given.plan.run_id
        case ScheduleRequest() | NotificationRequest():
            return given.name
        case StartRequest():
            return name_of(given.run.source)
        case SpecSource():
            return str(given.spec.get("name", ""))
        case JobSource():
            return given.job
        case RetrySource() | RerunSource():
            return given.run
        case _:
            return ""


def refused(entry: AuditEntry, error: MusterError) -> AuditEntry:
    """The entry for what is refused, with the reason."""
    if isinstance(error, NotPermitted):
        on = {**entry.attributes, **_short(error.on)}
        entry = replace(entry, permission=error.permission, attributes=on)
    return replace(entry, allowed=False, why=_cleaned(str(error)))


def decided(entry: AuditEntry, decision: Decision | None) -> AuditEntry:
    """The entry for what is allowed, with the reason."""
    if decision is None or decision.permission is None:
        return entry
    return replace(
        entry,
        permission=decision.permission,
        statement="" if decision.statement is None else decision.statement.place,
        attributes={**entry.attributes, **_short(decision.on)},
    )


def _short(on: Variables) -> dict[str, str]:
    return {name: _cleaned(value) for name, value in on.items()}


class ReadLog:
    """Which reads are recorded: each kind once an hour, so that the log tells who reads what by
    which statement. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: dict[tuple[str, ...], float] = {}

    def is_due(self, entry: AuditEntry) -> bool:
        """Whether to record a read."""
        last = self._noted.get(_kind(entry), -_READ_EVERY)
        return self._clock() - last >= _READ_EVERY

    def recorded(self, entry: AuditEntry) -> None:
        """A read was recorded."""
        if len(self._noted) >= _MOST_READS:
            self._noted.clear()
        self._noted[_kind(entry)] = self._clock()


def _kind(entry: AuditEntry) -> tuple[str, ...]:
    return (entry.user, entry.run, entry.project, entry.permission, entry.statement)


def audited_read(
    log: Audit,
    entry: Callable[[], AuditEntry],
    check: Callable[[], Decision | None],
    reads: ReadLog,
) -> None:
    """Check a read: one that is refused is recorded, one that is allowed as `reads` says."""
    with audited(log, entry, check, reads=reads):
        pass


def note_read(log: Audit, entry: AuditEntry, decision: Decision, reads: ReadLog) -> None:
    """Record a read that was allowed, unless it is recorded already."""
    made = decided(entry, decision)
    if reads.is_due(made):
        log.append(made)
        reads.recorded(made)


@contextmanager
def audited(
    log: Audit,
    entry: Callable[[], AuditEntry],
    check: Callable[[], Decision | None],
    *,
    reads: ReadLog | None = None,
) -> Iterator[None]:
    """Do what is in the block, if `check` does not raise Forbidden.

    entry: makes the entry for it, which is recorded before it is done: if that fails, nothing is
    done. What fails or is refused then has a second entry, with the reason. reads: nothing is
    changed; which of such entries are recorded.
    """
    try:
        decision = check()
    except Forbidden as error:
        log.append(refused(entry(), error))
        raise
    if reads is not None:
        if decision is not None and decision.statement is not None:
            note_read(log, entry(), decision, reads)
        try:
            yield
        except Forbidden as error:  # what else it takes
            log.append(refused(entry(), error))
            raise
        return
    made = decided(entry(), decision)
    log.append(made)
    try:
        yield
    except Forbidden as error:
        log.append(refused(made, error))
        raise
    except Exception as error:
        why = str(error) if isinstance(error, MusterError) else "internal error"
        log.append(replace(made, why=_cleaned(why)))
        raise


def _cleaned(text: str) -> str:
    """A text of a caller as each database can store it: valid Unicode without NUL, not too long."""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
