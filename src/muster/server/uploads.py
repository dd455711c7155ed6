"""Receive code (`storage.uploads`).

A client asks for the code by its digest, and uploads it only if its project does not have it. A
payload that was cut off is continued where it stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from msgspec import Struct

from muster.errors import InvalidInput, NotFound, Problem
from muster.server.answers import Answer, encoded
from muster.server.call import Call
from muster.server.parameters import decode_body, read_number
from muster.service.submissions import has_code
from muster.storage import uploads

T = TypeVar("T")
#: Bytes of a payload (OCI: a job's artifact has at most 4 GB).
MOST = 4 << 30


class Code(Struct, frozen=True):
    """Code that the project can use."""

    sha256: str


class Received(Struct, frozen=True):
    """How much of a payload is there."""

    #: Bytes.
    size: int


class Upload(Struct, frozen=True, forbid_unknown_fields=True):
    """What a complete payload is."""

    file_name: str
    kind: Literal["file", "folder"] = "file"


async def find_code(call: Call) -> Answer:
    """GET /code/{sha256}"""
    await _check(call)
    sha256, project = call.path["sha256"], call.caller.project
    if not await call.state.in_thread(has_code, call.state.backend, project, sha256):
        raise NotFound(f"no code with the digest {sha256} was uploaded to project {project}")
    return Answer(encoded(Code(sha256)))


async def received(call: Call) -> Answer:
    """GET /uploads/{digest}"""
    await _check(call)
    return Answer(encoded(Received(await _in_project(call, uploads.size))))


async def receive(call: Call) -> Answer:
    """PUT /uploads/{digest}?offset=N"""
    await _check(call)
    offset, in_thread = read_number(call.query, "offset", MOST) or 0, call.state.in_thread
    file = await _in_project(call, uploads.open_part, offset)
    try:
        async for part in call.parts(MOST - offset):
            await in_thread(file.write, part)
        await in_thread(file.flush)
        size = file.tell()
    finally:
        await in_thread(file.close)
    return Answer(encoded(Received(size)))


async def finish(call: Call) -> Answer:
    """POST /uploads/{digest}"""
    await _check(call)
    problems: list[Problem] = []
    what = decode_body(Upload, await call.body(), problems)
    if problems:
        raise InvalidInput(*problems)
    store = call.api().store_code
    stored = await call.state.in_thread(store, call.path["digest"], what.file_name, what.kind)
    return Answer(encoded(stored), 201)


async def _check(call: Call) -> None:
    """Raises Forbidden."""
    await call.state.in_thread(call.api().check_may_upload)


def _in_project(call: Call, function: Callable[..., T], *args: object) -> Awaitable[T]:
    home, project = call.state.backend.home, call.caller.project
    return call.state.in_thread(function, home, project, call.path["digest"], *args)
