"""Error files as PyTorch writes them, and malformed ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node import error_file
from muster.node.error_file import RecordedError


def read_back(folder: Path, content: Any) -> RecordedError | None:
    path = folder / "error.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return error_file.read(str(path))


def record(message: Any = "boom", **extra: Any) -> dict[str, Any]:
    """As `torch.distributed.elastic.multiprocessing.errors` writes it."""
    return {"message": {"message": message, "extraInfo": extra}}


STACK = "Traceback (most recent call last):\n  File ...\nRuntimeError: boom\n"


@pytest.mark.parametrize(
    ("content", "raised"),
    [
        (
            record(py_callstack=STACK, timestamp="1610000000"),
            RecordedError(STACK.strip(), 1610000000.0),
        ),
        (record(timestamp=1610000000), RecordedError("boom", 1610000000.0)),
        (record(py_callstack="  ", timestamp="1.5"), RecordedError("boom", 1.5)),
        (record(py_callstack=[1], timestamp=None), RecordedError("boom", None)),
        (record(message=None), RecordedError("", None)),
        ({"message": "text\n"}, RecordedError("text", None)),
        ({"message": {"message": "boom", "extraInfo": "none"}}, RecordedError("boom", None)),
        ({"message": {}}, RecordedError("", None)),
    ],
)
def test_error_files_that_are_understood(
    tmp_path: Path, content: Any, raised: RecordedError
) -> None:
    assert read_back(tmp_path, content) == raised


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'"' + b"x" * (2 << 20) + b'"',
        [],
        "text",
        None,
        {},
        {"message": None},
        {"message": 3},
        {"other": "text"},
    ],
)
def test_error_files_that_are_ignored(tmp_path: Path, content: Any) -> None:
    assert read_back(tmp_path, content) is None


@pytest.mark.parametrize(
    "timestamp",
    ["", "soon", "nan", "inf", "-1", "0", "1e999", True, [], {}, -1, 10**400, float("nan")],
)
def test_invalid_times_are_ignored(tmp_path: Path, timestamp: Any) -> None:
    assert read_back(tmp_path, record(timestamp=timestamp)) == RecordedError("boom", None)


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["message", "extraInfo", "py_callstack", "timestamp"]),
            inner,
            max_size=4,
        )
    ),
)


@given(content=anything | st.binary())
def test_no_content_crashes_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: Any
) -> None:
    found = read_back(tmp_path_factory.getbasetemp(), content)
    assert found is None or (found.raised_at is None or found.raised_at > 0)


def test_long_tracebacks_are_cut_to_whole_lines_and_still_recognized(
    tmp_path: Path,
) -> None:
    head = STACK.partition("\n")[0]
    lines = [head, *(f"  line {number}" for number in range(10_000)), "ValueError: at last"]
    found = read_back(tmp_path, record(py_callstack="\n".join(lines)))
    assert found is not None
    kept = found.message.split("\n")
    assert kept[:2] == [head, "  ..."]
    assert kept[2:] == lines[-len(kept) + 2 :]
    assert len(kept) == 20


def test_one_long_line_is_cut(tmp_path: Path) -> None:
    found = read_back(tmp_path, {"message": "x" * 10_000 + "end"})
    assert found == RecordedError("x" * 2048 + " ... " + "x" * 2045 + "end", None)


@pytest.mark.parametrize("at", [None, 1610000000.0])
@pytest.mark.parametrize("words", ["", "why", "x" * 5000 + "why"])
def test_an_error_recorded_for_a_rank_has_a_headline(
    tmp_path: Path, words: str, at: float | None
) -> None:
    path = str(tmp_path / "error.json")
    error_file.write(path, "rank 3 failed", RecordedError(words, at))
    found = error_file.read(path)
    assert found is not None
    assert found.raised_at == at
    headline, _, rest = found.message.partition(":\n")
    assert headline == "rank 3 failed"
    assert words.endswith(rest)
    assert len(rest) == min(len(words), 4096 - len("rank 3 failed:\n"))


def test_a_missing_file_or_a_fifo_is_no_error(tmp_path: Path) -> None:
    assert error_file.read(str(tmp_path / "nothing")) is None
    assert error_file.read(str(tmp_path)) is None
    os.mkfifo(tmp_path / "fifo")
    assert error_file.read(str(tmp_path / "fifo")) is None, "the reader does not wait for a writer"


def test_an_earlier_error_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.touch()
    for _ in range(2):
        error_file.remove(str(path))
        assert not path.exists()
