"""Answer with a file, or with a range of it (RFC 9110, section 14)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from muster.server.answers import BYTES, Answer, Stream
from muster.server.oci.errors import OciError
from muster.server.oci.request import OciRequest

_BLOCK = 1 << 20
_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})\s*", re.IGNORECASE)


async def file_range(
    request: OciRequest,
    path: Path,
    size: int,
    headers: Mapping[str, str],
    media_type: str = BYTES,
) -> Answer | Stream:
    """The content of a file, of which the request may want a range. size: in bytes. Raises
    OciError if the range is not in the file."""
    sent = sent_range(request, size)
    in_thread = request.state.in_thread
    file = await in_thread(_open, path)
    await in_thread(file.seek, sent.first)
    parts = _parts(request, file, sent.end - sent.first)
    given = {**headers, "accept-ranges": "bytes", **sent.headers}
    return Stream(parts, media_type, status=sent.status, headers=given)


def _open(path: Path) -> IO[bytes]:
    return open(path, "rb")


async def _parts(request: OciRequest, file: IO[bytes], left: int) -> AsyncGenerator[bytes]:
    try:
        while left and (block := await request.state.in_thread(file.read, min(left, _BLOCK))):
            left -= len(block)
            yield block
    finally:
        file.close()


class SentRange(NamedTuple):
    """The part of a content that is sent."""

    first: int
    end: int  # the first byte after it
    status: int
    headers: dict[str, str]


def sent_range(request: OciRequest, size: int) -> SentRange:
    """What a request wants of a content with so many bytes. Raises OciError if that is not in
    it."""
    found = byte_range(request.header("range"), size)
    first, end = found or (0, size)
    headers = {"content-length": str(end - first)}
    if found is None:
        return SentRange(first, end, 200, headers)
    headers["content-range"] = f"bytes {first}-{end - 1}/{size}"
    return SentRange(first, end, 206, headers)


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """The first byte of a range and the one after its last; None for the whole, also if the header
    has several ranges or cannot be read, as HTTP allows. Raises OciError."""
    found = _RANGE.fullmatch(header)
    if found is None or found[1] == found[2] == "":
        return None
    if not found[1]:  # the last ones
        first, end = max(0, size - int(found[2])), size
    else:
        first = int(found[1])
        end = min(size, int(found[2]) + 1) if found[2] else size
        if found[2] and int(found[2]) < first:
            return None
    if first >= size:
        text = f"The range is not in the content, which has {size} bytes."
        raise OciError(416, "InvalidRange", text, {"content-range": f"bytes */{size}"})
    return first, end
