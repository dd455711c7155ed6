"""Large texts in messages."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest

from muster.node import packed_text
from muster.node.agent_process import write_files
from muster.node.packed_text import pack, unpack


@pytest.mark.parametrize("text", ["", "node-0 slots=1\n" * 5000, "ü\n"])
def test_a_text_is_the_same_afterwards(text: str) -> None:
    assert unpack(pack(text)).decode() == text


def test_a_roster_takes_a_tenth() -> None:
    lines = [f'{{"IpAddress": "10.0.{n // 250}.{n % 250}", "Rank": "{n}"}}' for n in range(1000)]
    text = "\n".join(lines)
    assert len(pack(text)) < len(text) / 4


@pytest.mark.parametrize(
    "packed",
    ["", "no base64!", "bm8gemxpYg==", base64.b64encode(zlib.compress(b"x")[:-1]).decode()],
)
def test_what_was_not_packed_is_refused(packed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(packed)


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_text, "_MOST", 100)
    assert len(unpack(pack("x" * 99))) == 99
    with pytest.raises(ValueError, match="too large"):
        unpack(pack("x" * 101))


def test_packed_files_are_written_as_others(tmp_path: Path) -> None:
    write_files({str(tmp_path / "a"): "one"}, {str(tmp_path / "b"): pack("two")})
    assert [(tmp_path / name).read_text() for name in "ab"] == ["one", "two"]
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
