"""The bytes of objects, from the body of a request into files, and from files into an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from muster.errors import Conflict, NotFound
from muster.server.answers import Answer, Stream
from muster.server.oci.errors import OciError
from muster.server.oci.object_storage.errors import condition_failed
from muster.server.oci.object_storage.headers import (
    REPLACING,
    check_md5,
    check_value,
    condition_of,
    object_headers,
)
from muster.server.oci.object_storage.places import find_object
from muster.server.oci.request import OciRequest
from muster.server.oci.streams import sent_range
from muster.storage.objects import NewFile, ObjectReader, remove
from muster.store.object_records import BucketRecord, ConditionFailed, ObjectRecord

T = TypeVar("T")
#: Bytes of one body (OCI: 50 GiB).
MOST = 50 << 30
#: Bytes that are written, hashed or read at once.
_BLOCK = 1 << 20
#: Times that an object is looked for which is replaced while it is opened.
_TRIES = 10


async def receive(request: OciRequest) -> NewFile:
    """The body of a request, in a file that is complete and on the disk. While a block is written
    and hashed, in a thread each, the next one arrives. Raises OciError, OSError, and as
    `Call.parts`."""
    in_thread = request.state.in_file_thread
    file = await in_thread(NewFile, request.state.backend.home)
    working: list[asyncio.Future[None]] = []
    try:
        blocks: list[bytes] = []
        size = 0
        async for part in request.parts(MOST):
            blocks.append(part)
            size += len(part)
            if size >= _BLOCK:
                await _all(working)
                working = [
                    asyncio.ensure_future(in_thread(work, blocks))
                    for work in (file.write, file.hash)
                ]
                blocks, size = [], 0
        await _all(working)
        finishing = in_thread(_finish, file, blocks, request.header("content-md5"))
        working = [asyncio.ensure_future(finishing)]
        await _all(working)
    except BaseException:
        if working:  # a thread may still write to the file
            await asyncio.wait(working)
        await in_thread(file.discard)
        raise
    return file


async def _all(working: Sequence[asyncio.Future[None]]) -> None:
    """Wait for all, also if one fails or this task is canceled."""
    if working:
        await asyncio.wait(working)
        for one in working:
            one.result()


def _finish(file: NewFile, blocks: Sequence[bytes], md5: str) -> None:
    file.write(blocks)
    file.hash(blocks)
    check_md5(md5, file.md5())
    file.finish()


def record_files(request: OciRequest, names: Sequence[str], record: Callable[[], T]) -> T:
    """Record what new files are of. Removes them if that is refused. Raises OciError."""
    try:
        return record()
    except ConditionFailed as error:
        remove(request.state.backend.home, names)
        raise condition_failed(error) from None
    except (Conflict, NotFound, OciError):
        remove(request.state.backend.home, names)
        raise
    # after another error they may be recorded: if not, they are leftovers


async def send_object(request: OciRequest, bucket: BucketRecord, name: str) -> Answer | Stream:
    """An object, or a range of its bytes; for HEAD without them."""
    opened = await request.state.in_thread(_open, request, bucket, name)
    if isinstance(opened, Answer):
        return opened
    headers, reader, status = opened
    return Stream(_blocks(request, reader), headers.pop("content-type"), b"", status, headers)


def _open(
    request: OciRequest, bucket: BucketRecord, name: str
) -> Answer | tuple[dict[str, str], ObjectReader, int]:
    """What is answered without bytes, or else the headers, the bytes and the status. Raises
    OciError."""
    for _ in range(_TRIES):
        record = find_object(request, bucket, name)
        headers = object_headers(record) | _replaced(request)
        if (refused := _unless_matching(request, record, headers)) is not None:
            return refused
        sent = sent_range(request, record.size)
        headers |= sent.headers
        if request.call.verb == "HEAD":
            return Answer(b"", sent.status, headers.pop("content-type"), headers)
        pieces = request.store.objects.pieces(record.content)
        files = [(piece.file, piece.size) for piece in pieces]
        if sum(piece.size for piece in pieces) != record.size:
            continue  # it was replaced meanwhile
        try:
            reader = ObjectReader(request.state.backend.home, files, sent.first, sent.end)
        except FileNotFoundError:
            continue  # as above
        return headers, reader, sent.status
    raise FileNotFoundError(f"a file of object {name!r} in bucket {bucket.name} is missing")


def _unless_matching(
    request: OciRequest, record: ObjectRecord, headers: Mapping[str, str]
) -> Answer | None:
    """The answer if the object is not as the request says; None if it is. Raises OciError."""
    condition = condition_of(request.header)
    try:
        replace(condition, if_none_match="").check(record.etag)
    except ConditionFailed as error:
        raise condition_failed(error) from None
    try:
        condition.check(record.etag)
    except ConditionFailed:  # the client has it
        kept = ("etag", "last-modified", "cache-control")
        return Answer(status=304, headers={name: headers[name] for name in kept if name in headers})
    return None


def _replaced(request: OciRequest) -> dict[str, str]:
    """Headers that the query sets."""
    return {
        header: check_value(name, value)
        for name, header in REPLACING.items()
        if (value := request.given(name)) is not None
    }


async def _blocks(request: OciRequest, reader: ObjectReader) -> AsyncGenerator[bytes]:
    """What a reader reads. While a block is sent, the next one is read."""
    in_thread = request.state.in_file_thread
    coming = asyncio.ensure_future(in_thread(reader.read, _BLOCK))
    try:
        while block := await asyncio.shield(coming):
            coming = asyncio.ensure_future(in_thread(reader.read, _BLOCK))
            yield block
    finally:
        await asyncio.wait((coming,))
        await in_thread(reader.close)
