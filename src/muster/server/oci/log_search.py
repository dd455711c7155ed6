"""Search the output of job runs, and what programs have put into logs (OCI: Logging Search API
20190909, Logging Ingestion API 20200831)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cmp_to_key
from heapq import nsmallest
from typing import Any

from msgspec import Struct

from muster.api.streams import LogChunk, Selection
from muster.caller import Chooser
from muster.errors import MusterError
from muster.iam.resources import LOG_DETAILS, ocid_of
from muster.identity import new_id
from muster.permissions import Permission
from muster.server.answers import Answer, encoded
from muster.server.oci.errors import OciError, invalid, not_found
from muster.server.oci.listings import every
from muster.server.oci.log_query import LogQuery, field_of, parse_query
from muster.server.oci.moments import epoch, utc
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import find, lookup, target_of
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import Wire
from muster.spec.wildcards import matcher
from muster.storage import custom_logs
from muster.store.resource_records import JOB_RUN, LOG, LOG_GROUP, ResourceFilter, ResourceRecord

#: Entries of an answer: by default, and at most (OCI).
_LIMIT, _MOST = 500, 1000
#: Seconds from the start to the end of a search (OCI: 14 days).
_LONGEST_SPAN = 14 * 86400.0
#: Entries that one search looks at. ADS divides the time when it finds these words.
_MOST_SEARCHED = 1_000_000
_TOO_LARGE = "The search result is too large; choose a shorter time."
#: Nanoseconds between two lines that were recorded at once: clients find no more than 1,000 lines
#: in a millisecond.
_BETWEEN_LINES = 2_000
#: Seconds after the end of a run in which its last output is recorded, at most.
_LATE = 600.0
_TYPE = "com.oraclecloud.datascience.jobrun.stdout"


class Search(Wire, frozen=True, kw_only=True):
    """OCI: SearchLogsDetails."""

    time_start: datetime
    time_end: datetime
    search_query: str
    is_return_field_info: bool | None = None


class LogEntry(Wire, frozen=True, kw_only=True):
    """OCI: LogEntry."""

    data: str
    id: str | None = None
    time: datetime | None = None


class LogEntryBatch(Wire, frozen=True, kw_only=True):
    """OCI: LogEntryBatch."""

    entries: list[LogEntry]
    source: str
    type: str
    subject: str | None = None
    defaultlogentrytime: datetime | None = None


class PutLogs(Wire, frozen=True, kw_only=True):
    """OCI: PutLogsDetails."""

    specversion: str
    log_entry_batches: list[LogEntryBatch]


class _Scope(Struct, frozen=True):
    """What is searched: a compartment, or one of its groups or logs."""

    project: str
    #: The id of the group; None: all of the compartment.
    group: str | None
    #: The id of the log; None: all of the group.
    log: str | None
    #: Which logs of the project the caller sees.
    sees: Chooser


def search_logs(request: OciRequest) -> Answer:
    """POST /search"""
    given = request.read(Search)
    start, end = epoch(given.time_start), epoch(given.time_end)
    if end < start:
        raise invalid("timeEnd is before timeStart")
    if end - start > _LONGEST_SPAN:
        raise invalid("timeStart and timeEnd may be 14 days apart")
    try:
        query = parse_query(given.search_query)
    except ValueError as error:
        raise invalid(f"searchQuery: {error}") from None
    limit = request.number("limit", _LIMIT, 1, _MOST) or _LIMIT
    offset = request.number("page", 0, 0, _MOST_SEARCHED) or 0
    results: list[Mapping[str, Any]]
    scopes = [_scope(request, text) for text in query.scopes]
    entries, headers = _found(request, query, scopes, start, end), {}
    if query.count:
        results = [{"data": {"count": sum(1 for _ in entries)}}]
    else:
        # one more than the page: whether another page follows
        wanted = offset + limit + 1
        most = wanted if query.limit is None else min(wanted, query.limit)
        found = _first(query, entries, most)
        results = [_result(entry, query) for entry in found[offset : offset + limit]]
        if len(found) == wanted:
            headers["opc-next-page"] = str(offset + limit)
    summary = {"resultCount": len(results), "fieldCount": 0}
    return Answer(encoded({"results": results, "fields": [], "summary": summary}), headers=headers)


def _first(query: LogQuery, entries: Iterable[Mapping[str, Any]], most: int) -> list[Any]:
    """The first entries in the order of a query. No more of them are kept in memory."""
    fields = [
        ("time" if field == "datetime" else field, -1 if descending else 1)
        for field, descending in query.sort or (("datetime", True),)
    ]

    def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
        for name, sign in fields:
            left, right = (str(field_of(entry, name) or "") for entry in (one, other))
            if left != right:
                return sign if left > right else -sign
        return 0

    return nsmallest(most, entries, key=cmp_to_key(compare))


def _result(entry: Mapping[str, Any], query: LogQuery) -> Mapping[str, Any]:
    if query.select:
        return {"data": {name: field_of(entry, name) for name in query.select}}
    moment = datetime.fromisoformat(entry["time"][:26] + "+00:00")
    return {"data": {"datetime": int(moment.timestamp() * 1000), "logContent": entry}}


def _found(
    request: OciRequest, query: LogQuery, scopes: Sequence[_Scope], start: float, end: float
) -> Iterator[Mapping[str, Any]]:
    """The entries that fit. Raises OciError."""
    searched = 0
    for scope in scopes:
        for entry, at in _entries(request, query, scope, start, end):
            searched += 1
            if searched > _MOST_SEARCHED:
                raise OciError(400, "InvalidParameter", _TOO_LARGE)
            if start <= at <= end and query.fits(entry):
                yield entry


def _scope(request: OciRequest, text: str) -> _Scope:
    """What a text of the query names. Raises OciError."""
    compartment, _, rest = text.partition("/")
    group_text, _, log_text = rest.partition("/")
    project = request.project_of(compartment)
    sees = request.seen(project, request.permission)
    group = log = None
    if log_text:
        log = find(request, LOG, log_text, request.permission)
        group = lookup(request, LOG_GROUP, group_text, request.permission)
        if group is None or group.id != log.parent:
            raise not_found()
    elif group_text:
        group = find(request, LOG_GROUP, group_text, request.permission)
    group_id = None if group is None else group.id
    return _Scope(project, group_id, None if log is None else log.id, sees)


def _entries(
    request: OciRequest, query: LogQuery, scope: _Scope, start: float, end: float
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """The entries of a scope with their times in epoch seconds."""
    for run in _runs(request, query, scope, start, end):
        yield from _output(request, run, start)
    for log in _logs(request, scope):
        for entry in custom_logs.entries(request.state.backend.home, log.id):
            yield entry, datetime.fromisoformat(entry["time"]).timestamp()


def _logs(request: OciRequest, scope: _Scope) -> Iterator[ResourceRecord]:
    chosen = ResourceFilter(LOG, scope.project, id=scope.log, parent=scope.group)
    for log in every(request.store.resources, chosen):
        if scope.sees(target_of(request, log)):
            yield log


def _runs(
    request: OciRequest, query: LogQuery, scope: _Scope, start: float, end: float
) -> Iterator[ResourceRecord]:
    """The job runs whose output may be found."""
    tests = [matcher(source) for source in query.sources]
    exact = [source.strip("*") for source in query.sources]
    for text in exact:
        if (run := lookup(request, JOB_RUN, text, request.permission)) is not None:
            if _logs_to(request, run, scope):
                yield run
            return
    chosen = ResourceFilter(JOB_RUN, scope.project)
    for run in every(request.store.resources, chosen):
        fits = all(test(ocid_of(run)) for test in tests)
        if fits and _may_have_printed(run, start, end) and _logs_to(request, run, scope):
            yield run


def _may_have_printed(run: ResourceRecord, start: float, end: float) -> bool:
    """Whether a job run may have output of a time, which is looked for in its files."""
    finished = None if run.run is None else run.run.finished_at
    return run.created_at <= end and (finished is None or finished + _LATE >= start)


def _logs_to(request: OciRequest, run: ResourceRecord, scope: _Scope) -> bool:
    """Whether the output of a job run goes to a log of the scope, in which the caller may see it:
    the job run may be in another project."""
    details = run.data.get(LOG_DETAILS)
    if not details:
        return False
    permission = request.permission
    log = lookup(request, LOG, details["logId"], permission)
    group = lookup(request, LOG_GROUP, details["logGroupId"], permission)
    if log is None or group is None or log.project != scope.project:
        return False
    if scope.log not in (None, log.id) or scope.group not in (None, group.id):
        return False
    on = target_of(request, log)
    return scope.sees(on) and (
        run.project == scope.project or request.allows(run.project, permission, on)
    )


def _output(
    request: OciRequest, run: ResourceRecord, start: float
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """The lines of a job run's output, each at a time of its own."""
    if run.run is None or run.run_id is None:
        return
    api = request.allowed_api(run.data["runProject"], request.permission)
    common = {
        "source": ocid_of(run),
        "specversion": "1.0",
        "type": _TYPE,
        "oracle": {
            "compartmentid": request.compartments.ocid(run.project),
            "loggroupid": run.data[LOG_DETAILS]["logGroupId"],
            "logid": run.data[LOG_DETAILS]["logId"],
            "tenantid": request.compartments.tenancy or "",
        },
    }
    last: dict[Any, int] = {}
    try:
        for chunk in api.log(run.run_id, Selection(attempt="all")):
            if not isinstance(chunk, LogChunk) or chunk.stream.rank is None:
                continue
            stream = (chunk.stream.rank, chunk.stream.stream, chunk.attempt)
            at = max(chunk.time_ns, last.get(stream, 0))
            last[stream] = at + chunk.data.count(b"\n") * _BETWEEN_LINES
            if last[stream] < start * 1e9:
                continue
            # not splitlines: what moves the cursor is part of a line
            for line in chunk.data.decode(errors="replace").removesuffix("\n").split("\n"):
                yield _line(common, chunk, at, line), at / 1e9
                at += _BETWEEN_LINES
    except MusterError:
        return  # the run was deleted meanwhile


def _line(common: Mapping[str, Any], chunk: LogChunk, at: int, line: str) -> Mapping[str, Any]:
    rank, group = chunk.stream.rank, chunk.stream.group
    seconds, rest = divmod(at, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return {
        **common,
        "id": f"{at:x}-{rank}-{chunk.stream.stream}-{chunk.attempt}",
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z",
        "subject": f"node-{rank}",
        "data": {
            "message": line,
            "rank": rank,
            "nodeGroup": group,
            "stream": chunk.stream.stream,
        },
    }


def put_logs(request: OciRequest) -> Answer:
    """POST /logs/{log_id}/actions/push"""
    log = find(request, LOG, request.path["log_id"], request.permission)
    given = request.read(PutLogs)
    now = datetime.now(UTC)
    entries = [
        {
            "id": entry.id or new_id(),
            "time": _text(entry.time or batch.defaultlogentrytime or now),
            "source": batch.source,
            "type": batch.type,
            "subject": batch.subject or "",
            "specversion": given.specversion,
            "data": {"message": entry.data},
            "oracle": {"logid": ocid_of(log), "ingestedtime": _text(now)},
        }
        for batch in given.log_entry_batches
        for entry in batch.entries
    ]
    request.act(
        *(log.project, request.permission, "oci.logs.push", log.name),
        lambda: custom_logs.append(request.state.backend.home, log.id, entries),
        target_of(request, log),
    )
    return Answer(b"{}")


def _text(moment: datetime) -> str:
    text = utc(moment).replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{text}000Z"


ROUTES = (
    OciRoute("search_logs", "POST", "/20190909/search", search_logs, Permission.LOG_CONTENT_READ),
    OciRoute(
        *("put_logs", "POST", "/20200831/logs/{log_id}/actions/push", put_logs),
        permission=Permission.LOG_CONTENT_PUSH,
    ),
)
