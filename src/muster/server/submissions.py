"""Create Jobs and start runs from what clients send (`api.submissions`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from muster.api.schedules import ScheduleRequest
from muster.api.submissions import JobSource, PreviewRequest, SpecSource, StartRequest
from muster.caller import Caller, Right
from muster.errors import InvalidInput, Problem, StoreBusy
from muster.identity import id_of
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
    key = _run_id(call)
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
    body, source = await _body(call, SpecSource | JobSource)
    key = _run_id(call)
    api = call.api(run_id=key)
    job = await _once(call, key, body, partial(api.submit_job, source))
    return Answer(encoded(job), 201, headers={"location": f"/v1/jobs/{job.id}"})


async def preview_job(call: Call) -> Answer:
    """POST /jobs/preview"""
    _, source = await _body(call, SpecSource | JobSource)
    found = await call.state.in_thread(call.api().preview_job, source)
    return Answer(_hidden(found))


async def create_schedule(call: Call) -> Answer:
    """POST /schedules"""
    body, request = await _body(call, ScheduleRequest)
    key = _run_id(call)
    api = call.api(request.run.environ, key)
    create = partial(api.submit_schedule, request)
    made = await _once(call, key, body, create)
    return Answer(encoded(made), 201, headers={"location": f"/v1/schedules/{made.id}"})


async def trigger_schedule(call: Call) -> Answer:
    """POST /schedules/{schedule_id}/trigger"""
    key, schedule = _run_id(call), call.path["schedule_id"]
    trigger = partial(call.api(run_id=key).trigger_schedule, schedule)
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
    if key is None or Right.SUBMIT not in call.caller.rights:  # which is refused
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


def _run_id(call: Call) -> str | None:
    """The id that the request's idempotency key stands for; None if it has none."""
    key = call.header("idempotency-key")
    if not key:
        return None
    if len(key) > _MOST_KEY:
        text = f"has {len(key)} characters; the most are {_MOST_KEY}"
        raise InvalidInput(Problem("Idempotency-Key", text))
    return run_id_of(call.caller, key)


def run_id_of(caller: Caller, key: str) -> str:
    """The id of what a caller creates with an idempotency key: the same one each time."""
    return id_of(caller.project, caller.user, key)


def _hidden(value: Any) -> bytes:
    """A value as JSON with secrets hidden: it is made from a spec with all of them."""
    data: Mapping[str, Any] = msgspec.json.decode(encoded(value))
    return encoded(hidden(data))
