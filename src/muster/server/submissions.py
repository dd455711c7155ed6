"""Create Jobs and start runs from what clients send (`api.submissions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from muster.api.schedules import ScheduleRequest
from muster.api.submissions import JobRequest, PreviewRequest, StartRequest
from muster.errors import InvalidInput, Problem, StoreBusy
from muster.identity import id_of
from muster.permissions import Permission
from muster.secrets import hidden
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import decode_body
from muster.storage import request_keys

T = TypeVar("T")
#: Characters of an idempotency key.
_MOST_KEY = 255
#: Seconds between looks whether the same request has been carried out, which take a thread each.
_WAITS = (*[0.05] * 20, *[0.5] * 58)


async def start_run(call: Call) -> Answer:
    """POST /runs"""
    body, request = await _body(call, StartRequest)
    key = _id_of_key(call)
    api = call.api(request.run.environ, key)
    run = await _once(call, key, body, partial(api.submit, request))
    return Answer(encoded(run), 201, headers={"location": f"/v1/runs/{run.id}"})


async def preview_run(call: Call) -> Answer:
    """POST /runs/preview"""
    _, request = await _body(call, PreviewRequest)
    api = call.api(request.run.environ)
    found = await call.state.in_thread(api.preview, request)
    return Answer(_hidden(found))


async def create_job(call: Call) -> Answer:
    """POST /jobs"""
    body, source = await _body(call, JobRequest)
    key = _id_of_key(call)
    api = call.api(created_id=key)
    job = await _once(call, key, body, partial(api.submit_job, source))
    return Answer(encoded(job), 201, headers={"location": f"/v1/jobs/{job.id}"})


async def preview_job(call: Call) -> Answer:
    """POST /jobs/preview"""
    _, source = await _body(call, JobRequest)
    found = await call.state.in_thread(call.api().preview_job, source)
    return Answer(_hidden(found))


async def create_schedule(call: Call) -> Answer:
    """POST /schedules"""
    body, request = await _body(call, ScheduleRequest)
    key = _id_of_key(call)
    api = call.api(request.run.environ, key)
    create = partial(api.submit_schedule, request)
    made = await _once(call, key, body, create)
    return Answer(encoded(made), 201, headers={"location": f"/v1/schedules/{made.id}"})


async def trigger_schedule(call: Call) -> Answer:
    """POST /schedules/{schedule_id}/trigger"""
    key, schedule = _id_of_key(call), call.path["schedule_id"]
    trigger = partial(call.api(created_id=key).trigger_schedule, schedule)
    run = await _once(call, key, schedule.encode(), trigger)
    return Answer(encoded(run), 201, headers={"location": f"/v1/runs/{run.id}"})


async def _body(call: Call, kind: Any) -> tuple[bytes, Any]:
    """The body, and its value. Raises InvalidInput."""
    problems: list[Problem] = []
    body = await call.body()
    value = decode_body(kind, body, problems)
    if problems:
        raise InvalidInput(*problems)
    return body, value


async def _once(call: Call, key: str | None, body: bytes, do: Callable[[], T]) -> T:
    """Carry out a request. key: of its idempotency key. Raises Conflict if that was used for
    another body or path, StoreBusy if the same request is being carried out for long."""
    if key is None or not call.caller.allows(Permission.JOB_RUN_CREATE):  # which is refused
        return await call.state.in_thread(do)
    digest = blake2b(call.route.encode() + body, digest_size=24).hexdigest()

    def carry_out() -> T:
        with request_keys.held(call.state.backend.home, key, digest):
            return do()

    for wait in _WAITS:
        try:
            return await call.state.in_thread(carry_out)
        except request_keys.InProgress:
            await asyncio.sleep(wait)
    raise StoreBusy("the same request is still being carried out; send it again")


def _id_of_key(call: Call) -> str | None:
    """The id of what a request with an idempotency key creates, the same one each time; None if it
    has none. Other callers may use the same key."""
    key = call.header("idempotency-key")
    if not key:
        return None
    if len(key) > _MOST_KEY:
        text = f"has {len(key)} characters; the most are {_MOST_KEY}"
        raise InvalidInput(Problem("Idempotency-Key", text))
    return id_of(call.caller.project, call.caller.user, key)


def _hidden(value: Any) -> bytes:
    """A value as JSON with secrets hidden: it is made from a spec with all of them."""
    data: Mapping[str, Any] = msgspec.json.decode(encoded(value))
    return encoded(hidden(data))
