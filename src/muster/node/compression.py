"""Compression of the bytes of a stream: each frame by itself, so that no end keeps a state for it.

Text of logs shrinks to a fifth or less. What does not shrink, as files that are compressed already,
is recognized by a sample, which costs a twentieth of the attempt.
"""

from __future__ import annotations

import zlib

#: Fewer bytes are not compressed: they are sent at once anyway.
_LEAST = 256
_SAMPLE = 2048
#: What has to be left at most, as a part of the bytes.
_WORTH = 0.9
#: The fastest: others are slower than the networks of clusters.
_LEVEL = 1


def compressed(data: bytes) -> bytes | None:
    """The data in fewer bytes; None if that is not worth it."""
    if len(data) < _LEAST:
        return None
    if len(data) > 4 * _SAMPLE:
        middle = len(data) // 2
        if not _is_worth_it(data[middle : middle + _SAMPLE]):
            return None
    return _is_worth_it(data)


def _is_worth_it(data: bytes) -> bytes | None:
    packed = zlib.compress(data, _LEVEL)
    return packed if len(packed) <= len(data) * _WORTH else None


def decompressed(packed: bytes, most: int) -> bytes:
    """The data that were compressed. Raises ValueError for what is no compressed data, and for more
    than so many bytes."""
    one = zlib.decompressobj()
    try:
        data = one.decompress(packed, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not one.eof or one.unused_data or len(data) > most:
        raise ValueError("more or fewer bytes than were compressed")
    return data
