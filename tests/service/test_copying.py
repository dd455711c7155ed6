"""The program of an end that sends, in a file."""

from __future__ import annotations

import io
import tempfile

import pytest

from muster.service import copying


class Full(io.FileIO):
    """Takes up to a thousand bytes at once, as a disk that becomes full may."""

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        return super().write(data[:1000])


def test_a_program_that_is_written_in_parts_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tempfile.NamedTemporaryFile()  # noqa: SIM115
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full(made.name, "r+b"))
    content = bytes(range(256)) * 100
    with made, copying._file(content) as file:
        assert file.read() == content
