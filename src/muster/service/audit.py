"""Record in the audit log what callers do, before it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Forbidden, MusterError

if TYPE_CHECKING:
    from muster.caller import Caller
    from muster.store.account_records import AuditEntry
    from muster.store.base import Audit

#: Characters of an entry's texts: callers choose some of them.
_LONGEST = 1000


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
        address=_cleaned(origin.address),
        request_id=_cleaned(origin.request_id),
    )


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
    return replace(entry, allowed=False, why=_cleaned(str(error)))


@contextmanager
def audited(
    log: Audit,
    entry: Callable[[], AuditEntry],
    check: Callable[[], object],
    *,
    changes: bool = True,
) -> Iterator[None]:
    """Do what is in the block, if `check` does not raise Forbidden.

    entry: makes the entry for it, which is recorded before it is done: if that fails, nothing is
    done. What fails has a second entry, with the reason. changes: otherwise it is recorded only if
    it is refused.
    """
    try:
        check()
    except Forbidden as error:
        log.append(refused(entry(), error))
        raise
    if not changes:
        yield
        return
    made = entry()
    log.append(made)
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, MusterError) else "internal error"
        log.append(replace(made, why=_cleaned(why)))
        raise


def _cleaned(text: str) -> str:
    """A text of a caller as each database can store it: valid Unicode without NUL, not too long."""
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")
