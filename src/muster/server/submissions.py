"""Create Jobs and start runs from what clients send (`api.submissions`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.api.submissions import JobSource, PreviewRequest, SpecSource, StartRequest
from muster.caller import Caller
from muster.errors import InvalidInput, Problem
from muster.identity import id_of
from muster.secrets import hidden
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import decode_body

#: Characters of an idempotency key.
_MOST_KEY = 255


async def start_run(call: Call) -> Answer:
    """POST /runs"""
    request = await _body(call, StartRequest)
    api = call.api(request.run.environ, _run_id(call))
    run = await call.state.in_thread(api.submit, request)
    return Answer(encoded(run), 201, headers={"location": f"/v1/runs/{run.id}"})


async def preview_run(call: Call) -> Answer:
    """POST /runs/preview"""
    request = await _body(call, PreviewRequest)
    api = call.api(request.run.environ)
    found = await call.state.in_thread(api.preview, request)
    return Answer(_hidden(found))


async def create_job(call: Call) -> Answer:
    """POST /jobs"""
    source = await _body(call, SpecSource | JobSource)
    api = call.api(run_id=_run_id(call))
    job = await call.state.in_thread(api.submit_job, source)
    return Answer(encoded(job), 201, headers={"location": f"/v1/jobs/{job.id}"})


async def preview_job(call: Call) -> Answer:
    """POST /jobs/preview"""
    source = await _body(call, SpecSource | JobSource)
    found = await call.state.in_thread(call.api().preview_job, source)
    return Answer(_hidden(found))


async def _body(call: Call, kind: Any) -> Any:
    problems: list[Problem] = []
    value = decode_body(kind, await call.body(), problems)
    if problems:
        raise InvalidInput(*problems)
    return value


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
