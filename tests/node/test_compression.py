"""Compression of the bytes of streams."""

from __future__ import annotations

import os
import tracemalloc
import zlib

import pytest

from muster.node.compression import compressed, decompressed
from muster.node.streams import CHUNK

TEXT = b"".join(b"epoch %d: loss 0.%d\n" % (n, n * n) for n in range(4000))[:CHUNK]


@pytest.mark.parametrize("size", [256, 1000, 9000, CHUNK])
def test_text_shrinks(size: int) -> None:
    packed = compressed(TEXT[:size])
    assert packed is not None
    assert len(packed) < size / 2
    assert decompressed(packed, CHUNK) == TEXT[:size]


@pytest.mark.parametrize(
    "data", [b"", b"x" * 255, os.urandom(300), os.urandom(CHUNK), zlib.compress(TEXT)]
)
def test_what_does_not_shrink_stays_as_it_is(data: bytes) -> None:
    assert compressed(data) is None


def test_the_attempt_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    real = zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data, level: tried.append(len(data)) or real(data))  # type: ignore[func-returns-value]
    compressed(os.urandom(CHUNK))
    assert sum(tried) <= CHUNK // 20


def test_a_bomb_is_not_held_in_memory() -> None:
    bomb = zlib.compress(bytes(100 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more or fewer bytes"):
            decompressed(bomb, CHUNK)
        assert tracemalloc.get_traced_memory()[1] < 16 * CHUNK
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"text",
        zlib.compress(TEXT)[:-1],
        zlib.compress(TEXT) + b"x",
        zlib.compress(bytes(CHUNK + 1)),
        zlib.compress(bytes(100 << 20)),  # a bomb
    ],
)
def test_what_is_wrong_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"incorrect header|more or fewer bytes"):
        decompressed(packed, CHUNK)
