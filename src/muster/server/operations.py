"""Answer the operations of `MusterAPI` (`api.operations`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import to_builtins
from msgspec.structs import replace

from muster.api.interface import MusterAPI
from muster.api.operations import OPERATIONS, Operation
from muster.api.problems import details_of
from muster.api.streams import EventItem
from muster.errors import MusterError, NotFound
from muster.identity import is_id
from muster.secrets import hidden
from muster.server.answers import (
    BYTES,
    EVENTS,
    JSON_LINES,
    Answer,
    Stream,
    encoded,
    etag_of,
    matches,
)
from muster.server.call import Call, Changed
from muster.server.pages import next_link
from muster.server.parameters import Parameters, number_of
from muster.service.embedded import EmbeddedAPI
from muster.store.records import RunFilter

#: Ends a stream of lines that is complete. One that was cut off has no such line.
_END = b'{"type":"End"}'
#: Operations that read a few rows of the store, and no files.
_SHORT = {"caller", "find_run", "job", "last_event", "notification", "restarts", "run", "schedule"}
#: The most runs of a page for which this holds.
_SHORT_PAGE = 50
#: Bytes that one thread makes at a time.
_BATCH = 1 << 17

#: Methods that may be requested with If-Match, the ETag of what they change -> its parameter, and
#: the method that reads it.
CONDITIONAL = {
    "edit_job": ("job_id", "job"),
    "delete_job": ("job_id", "job"),
    "edit_schedule": ("schedule_id", "schedule"),
    "delete_schedule": ("schedule_id", "schedule"),
    "edit_notification": ("notification_id", "notification"),
    "delete_notification": ("notification_id", "notification"),
}

Handler = Callable[[Call], Awaitable[Answer | Stream]]


class OperationHandler:
    """Answers one operation: calls the method with its parameters."""

    def __init__(self, name: str, operation: Operation) -> None:
        self.name = name
        self.operation = operation
        self.parameters = Parameters(operation, getattr(MusterAPI, name))

    async def __call__(self, call: Call) -> Answer | Stream:
        body = b"" if self.parameters.body is None else await call.body()
        given = self.parameters.read(call.path, call.query, body)
        environ = given.pop("environ", None)
        api = call.api(environ)
        in_thread = call.state.in_thread
        if self._is_short(given) and call.state.backend.store.reads_at_once:
            # to hand it to a thread would take longer
            return _with_etag(call, self._answer(call, api, given))
        if self.operation.form == "json":
            return _with_etag(call, await in_thread(self._answer, call, api, given))
        if self.name == "result":
            return await in_thread(self._result, api, given)
        if self.operation.form == "bytes":
            blocks = await in_thread(self._call, api, given)
            return Stream(_in_threads(call, blocks), BYTES)
        resumed = call.header("last-event-id")
        if self.operation.form == "events" and resumed:
            given["after"] = number_of(resumed, "Last-Event-ID", (1 << 63) - 1)
        if self.name == "log" and not given.get("follow"):
            chunks = await in_thread(self._call, api, given)
            return Stream(_lines_in_threads(call, chunks), JSON_LINES)
        items = await in_thread(self._stream, api, given)
        if self.operation.form == "events":
            return Stream(_events(call, items), EVENTS, b": nothing new\n\n")
        return Stream(_lines(call, items), JSON_LINES, b"\n")

    def _is_short(self, given: Mapping[str, Any]) -> bool:
        if self.name != "runs":
            return self.name in _SHORT
        page = given["chosen"]
        # others may look at all runs to find a few
        few = page.limit is not None and page.limit <= _SHORT_PAGE
        return few and page == RunFilter(limit=page.limit, before=page.before)

    def _call(self, api: EmbeddedAPI, given: dict[str, Any]) -> Any:
        _resolve(api, given)
        return getattr(api, self.name)(**given)

    def _answer(self, call: Call, api: EmbeddedAPI, given: dict[str, Any]) -> Answer:
        limit = given["chosen"].limit if given.get("chosen") else given.get("limit")
        if self.name in CONDITIONAL:
            _check_unchanged(call, api, *CONDITIONAL[self.name], given)
        answer = self._call(api, given)
        if self.name == "job_spec":  # it is decoded, with its secrets
            answer = hidden(to_builtins(answer))
        headers: Mapping[str, str] = {}
        if limit is not None:
            headers = next_link(self.name, self.operation.url(call.path), call.query, limit, answer)
        return Answer(encoded(answer), headers=headers)

    def _result(self, api: EmbeddedAPI, given: dict[str, Any]) -> Answer:
        found = self._call(api, given)
        if found is None:
            raise NotFound(f"rank {given['rank']} has left no result")
        return Answer(found, media_type=BYTES)

    def _stream(self, api: EmbeddedAPI, given: dict[str, Any]) -> AsyncGenerator[Any]:
        _resolve(api, given)
        stream: AsyncGenerator[Any] = getattr(api, f"{self.name}_async")(**given)
        return stream


def _resolve(api: EmbeddedAPI, given: dict[str, Any]) -> None:
    """Accept the name of a run or Job, and what else finds one, where the method takes an id."""
    run, job = given.get("run_id"), given.get("job_id")
    if run is not None and not is_id(run):
        given["run_id"] = api.find_run(run).id
    if job is not None and not is_id(job):
        given["job_id"] = api.job(job).id


def _check_unchanged(
    call: Call, api: EmbeddedAPI, parameter: str, kind: str, given: Mapping[str, Any]
) -> None:
    """Raises Changed unless the Job or schedule is as it was when the client read it."""
    expected, name = call.header("if-match"), given[parameter]
    if expected and not matches(expected, etag_of(encoded(getattr(api, kind)(name)))):
        raise Changed(f"{kind} {name} has changed since it was read; read it again")


def _with_etag(call: Call, answer: Answer) -> Answer:
    if call.verb != "GET":
        return answer
    tag = etag_of(answer.body)
    headers = {**answer.headers, "etag": tag}
    if matches(call.header("if-none-match"), tag):
        return Answer(status=304, headers=headers)
    return replace(answer, headers=headers)


async def _lines(call: Call, items: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
    """Each item as a line; the last one is an error, or says that nothing follows."""
    async with aclosing(items):
        try:
            async for item in items:
                yield encoded(item) + b"\n"
        except Exception as error:  # noqa: BLE001  the status was sent before
            yield _error(call, error) + b"\n"
            return
        yield _END + b"\n"


async def _lines_in_threads(call: Call, items: Generator[Any]) -> AsyncGenerator[bytes]:
    """As `_lines`, for many items that are there already."""

    def batch() -> tuple[bytes, bool]:
        """Some lines, and whether they are the last."""
        data = bytearray()
        try:
            for item in items:
                data += encoded(item) + b"\n"
                if len(data) >= _BATCH:
                    return bytes(data), False
        except Exception as error:  # noqa: BLE001  as above
            return bytes(data) + _error(call, error) + b"\n", True
        return bytes(data) + _END + b"\n", True

    try:
        complete = False
        while not complete:
            data, complete = await call.state.in_thread(batch)
            yield data
    finally:
        await call.state.in_thread(items.close)


async def _events(call: Call, items: AsyncGenerator[Any]) -> AsyncGenerator[bytes]:
    """Each item as an event (HTML: server-sent events)."""
    async with aclosing(items):
        try:
            async for item in items:
                number = b"id: %d\n" % item.entry.seq if isinstance(item, EventItem) else b""
                yield number + b"data: " + encoded(item) + b"\n\n"
        except Exception as error:  # noqa: BLE001  as above
            yield b"event: error\ndata: " + _error(call, error) + b"\n\n"
            return
        yield b"event: end\ndata: {}\n\n"


def _error(call: Call, error: Exception) -> bytes:
    if not isinstance(error, (MusterError, TimeoutError)):
        call.state.log.defect("internal error in a stream", error, call.request_id)
    return msgspec.json.encode({"type": "Error", "error": details_of(error, call.request_id)})


async def _in_threads(call: Call, blocks: Generator[bytes]) -> AsyncGenerator[bytes]:
    try:
        while (block := await call.state.in_thread(next, blocks, None)) is not None:
            yield block
    finally:
        await call.state.in_thread(blocks.close)


def operation_handlers() -> Iterator[tuple[Operation, Handler]]:
    """Each operation with its handler."""
    for name, operation in OPERATIONS.items():
        yield operation, OperationHandler(name, operation)
