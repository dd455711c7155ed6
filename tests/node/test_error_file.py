"""Notes programs leave of their failures, as PyTorch writes them and as nobody should."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.node import error_file
from muster.node.error_file import Raised


def noted(folder: Path, content: Any) -> Raised | None:
    path = folder / "error.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return error_file.read(str(path))


def record(message: Any = "boom", **extra: Any) -> dict[str, Any]:
    """As `torch.distributed.elastic.multiprocessing.errors` has it."""
    return {"message": {"message": message, "extraInfo": extra}}


STACK = "Traceback (most recent call last):\n  File ...\nRuntimeError: boom\n"


@pytest.mark.parametrize(
    ("content", "raised"),
    [
        (record(py_callstack=STACK, timestamp="1610000000"), Raised(STACK.strip(), 1610000000.0)),
        (record(timestamp=1610000000), Raised("boom", 1610000000.0)),
        (record(py_callstack="  ", timestamp="1.5"), Raised("boom", 1.5)),
        (record(py_callstack=[1], timestamp=None), Raised("boom", None)),
        (record(message=None), Raised("", None)),
        ({"message": "text\n"}, Raised("text", None)),
        ({"message": {"message": "boom", "extraInfo": "none"}}, Raised("boom", None)),
        ({"message": {}}, Raised("", None)),
    ],
)
def test_what_is_understood(tmp_path: Path, content: Any, raised: Raised) -> None:
    assert noted(tmp_path, content) == raised


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
def test_what_is_not(tmp_path: Path, content: Any) -> None:
    assert noted(tmp_path, content) is None


@pytest.mark.parametrize(
    "timestamp",
    ["", "soon", "nan", "inf", "-1", "0", "1e999", True, [], {}, -1, 10**400, float("nan")],
)
def test_times_that_are_none(tmp_path: Path, timestamp: Any) -> None:
    assert noted(tmp_path, record(timestamp=timestamp)) == Raised("boom", None)


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
def test_nothing_crashes(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    found = noted(tmp_path_factory.getbasetemp(), content)
    assert found is None or (found.at is None or found.at > 0)


def test_long_tracebacks_are_cut_to_whole_lines_and_still_known_for_what_they_are(
    tmp_path: Path,
) -> None:
    head = STACK.partition("\n")[0]
    lines = [head, *(f"  line {number}" for number in range(10_000)), "ValueError: at last"]
    found = noted(tmp_path, record(py_callstack="\n".join(lines)))
    assert found is not None
    kept = found.message.split("\n")
    assert kept[:2] == [head, "  ..."]
    assert kept[2:] == lines[-len(kept) + 2 :]
    assert len(kept) == 20


def test_one_long_line_is_cut(tmp_path: Path) -> None:
    found = noted(tmp_path, {"message": "x" * 10_000 + "end"})
    assert found == Raised("x" * 2048 + " ... " + "x" * 2045 + "end", None)


@pytest.mark.parametrize("at", [None, 1610000000.0])
@pytest.mark.parametrize("words", ["", "why", "x" * 5000 + "why"])
def test_what_is_noted_for_another_is_read_under_its_headline(
    tmp_path: Path, words: str, at: float | None
) -> None:
    path = str(tmp_path / "error.json")
    error_file.write(path, "rank 3 failed", Raised(words, at))
    found = error_file.read(path)
    assert found is not None
    assert found.at == at
    headline, _, rest = found.message.partition(":\n")
    assert headline == "rank 3 failed"
    assert words.endswith(rest)
    assert len(rest) == min(len(words), 4096 - len("rank 3 failed:\n"))


def test_what_is_no_file(tmp_path: Path) -> None:
    assert error_file.read(str(tmp_path / "nothing")) is None
    assert error_file.read(str(tmp_path)) is None
    os.mkfifo(tmp_path / "fifo")
    assert error_file.read(str(tmp_path / "fifo")) is None, "and nobody waits for a writer"


def test_what_was_left_before_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.touch()
    for _ in range(2):
        error_file.forget(str(path))
        assert not path.exists()
