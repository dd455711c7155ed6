"""Search the output of job runs, and what programs have put into logs (OCI: Logging Search API
20190909, Logging Ingestion API 20200831)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cmp_to_key
from heapq import nsmallest
from typing import Any

from msgspec import Struct

from muster.api.streams import LogChunk, Selection
from muster.caller import Right
from muster.errors import MusterError
from muster.identity import new_id
from muster.server.answers import Answer, encoded
from muster.server.oci import jobs, logs
from muster.server.oci.errors import OciError, invalid
from muster.server.oci.log_query import LogQuery, field_of, parse_query
from muster.server.oci.query_text import matcher
from muster.server.oci.request import OciRequest
from muster.server.oci.resources import find, lookup, ocid_of
from muster.server.oci.routes import OciRoute
from muster.spec.formats.oci.model import Wire
from muster.storage import custom_logs
from muster.store.resource_records import ResourceFilter, ResourceRecord

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


def search_logs(request: OciRequest) -> Answer:
    """POST /search"""
    given = request.read(Search)
    start, end = _utc(given.time_start).timestamp(), _utc(given.time_end).timestamp()
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
    entries, headers = _found(request, query, start, end), {}
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
    request: OciRequest, query: LogQuery, start: float, end: float
) -> Iterator[Mapping[str, Any]]:
    """The entries that fit. Raises OciError."""
    searched = 0
    for text in query.scopes:
        scope = _scope(request, text)
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
    project = request.project_with(compartment, Right.READ)
    group = log = None
    if group_text:
        group = find(request, logs.GROUP, group_text, Right.READ).id
    if log_text:
        log = find(request, logs.LOG, log_text, Right.READ).id
    return _Scope(project, group, log)


def _entries(
    request: OciRequest, query: LogQuery, scope: _Scope, start: float, end: float
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """The entries of a scope with their times in epoch seconds."""
    for run in _runs(request, query, scope, end):
        yield from _output(request, run, start)
    for log in _logs(request, scope):
        for entry in custom_logs.entries(request.state.backend.home, log.id):
            yield entry, datetime.fromisoformat(entry["time"]).timestamp()


def _logs(request: OciRequest, scope: _Scope) -> list[ResourceRecord]:
    chosen = ResourceFilter(logs.LOG, scope.project, id=scope.log, parent=scope.group)
    return request.store.resources.listing(chosen)


def _runs(
    request: OciRequest, query: LogQuery, scope: _Scope, end: float
) -> Iterator[ResourceRecord]:
    """The job runs whose output may be found."""
    tests = [matcher(source) for source in query.sources]
    exact = [source.strip("*") for source in query.sources]
    for text in exact:
        if (run := lookup(request, jobs.RUN_KIND, text)) is not None:
            if request.principal.sees(run.project) and _logs_to(request, run, scope):
                yield run
            return
    chosen = ResourceFilter(jobs.RUN_KIND, scope.project)
    for run in request.store.resources.listing(chosen):
        fits = all(test(ocid_of(run)) for test in tests)
        if fits and run.created_at <= end and _logs_to(request, run, scope):
            yield run


def _logs_to(request: OciRequest, run: ResourceRecord, scope: _Scope) -> bool:
    """Whether the output of a job run goes to a log of the scope."""
    details = run.data.get("logDetails")
    if not details:
        return False
    log = lookup(request, logs.LOG, details["logId"])
    group = lookup(request, logs.GROUP, details["logGroupId"])
    if log is None or group is None or log.project != scope.project:
        return False
    return scope.log in (None, log.id) and scope.group in (None, group.id)


def _output(
    request: OciRequest, run: ResourceRecord, start: float
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """The lines of a job run's output, each at a time of its own."""
    if run.run is None or run.run_id is None:
        return
    api = request.api_elsewhere(run.project, run.data["runProject"])
    common = {
        "source": ocid_of(run),
        "specversion": "1.0",
        "type": _TYPE,
        "oracle": {
            "compartmentid": request.compartments.ocid(run.project),
            "loggroupid": run.data["logDetails"]["logGroupId"],
            "logid": run.data["logDetails"]["logId"],
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
    log = find(request, logs.LOG, request.path["log_id"], Right.SUBMIT)
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
        *(log.project, Right.SUBMIT, "oci.logs.push", log.name),
        lambda: custom_logs.append(request.state.backend.home, log.id, entries),
    )
    return Answer(b"{}")


def _text(moment: datetime) -> str:
    text = _utc(moment).replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{text}000Z"


def _utc(moment: datetime) -> datetime:
    """A time of a request in UTC, as it is without a zone. Raises OciError."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise invalid(f"{moment.isoformat()} is not a time of the years 1 to 9999 in UTC") from None


ROUTES = (
    OciRoute("search_logs", "POST", "/20190909/search", search_logs),
    OciRoute("put_logs", "POST", "/20200831/logs/{log_id}/actions/push", put_logs),
)
