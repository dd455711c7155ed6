"""Large texts in messages, such as the roster of thousands of nodes, which each of them gets:
packed once, they take a tenth of the bytes."""

from __future__ import annotations

import base64
import zlib

#: Characters from which on packing is worth it.
LEAST = 8192
#: Bytes that a packed text may have: a roster of a million nodes has fewer.
_MOST = 1 << 29


def pack(text: str) -> str:
    """A text as `unpack` takes it."""
    return base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def unpack(packed: str) -> bytes:
    """The bytes of a text. Raises ValueError if it was not packed, or is too large."""
    stream = zlib.decompressobj()
    try:
        found = stream.decompress(base64.b64decode(packed, validate=True), _MOST)
    except zlib.error as error:
        raise ValueError("a packed text cannot be read: %s" % error) from None
    if not stream.eof:
        raise ValueError("a packed text is incomplete, or too large")
    return found
