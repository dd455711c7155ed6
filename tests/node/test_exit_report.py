"""The stderr tail of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node.exit_report import stderr_tail
from muster.node.files import file_size

HEAD = "Traceback (most recent call last):"
FRAMES = ['  File "train.py", line 3, in <module>', "    main()"]
RAISED = "RuntimeError: boom"


def tail_lines(folder: Path, *lines: str, before: str = "") -> list[str]:
    path = folder / "err"
    path.write_text(before + "\n".join(lines) + "\n")
    return stderr_tail(str(path), len(before)).splitlines()


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    assert tail_lines(tmp_path, *"abcdefg") == list("cdefg")
    assert tail_lines(tmp_path, "a", "", "  ", " b  ") == ["a", " b"]
    assert tail_lines(tmp_path, "") == []


def test_only_output_of_this_incarnation_is_shown(tmp_path: Path) -> None:
    assert tail_lines(tmp_path, "c", before="a\nb\n") == ["c"]
    assert tail_lines(tmp_path, "", before="a\nb\n") == []


def test_a_rewritten_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("new\n")
    assert stderr_tail(str(tmp_path / "err"), 1000) == "new"


def test_a_missing_file_has_no_tail(tmp_path: Path) -> None:
    assert stderr_tail(str(tmp_path / "err"), 0) == ""
    assert file_size(str(tmp_path / "err")) == 0


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    (found,) = tail_lines(tmp_path, "x" * (1 << 20) + "end")
    assert len(found) == 4101
    assert found.endswith("end")


def test_bytes_that_are_not_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "err").write_bytes(b"\xff\xfe\n\x00")
    assert stderr_tail(str(tmp_path / "err"), 0) == "\ufffd\ufffd\n\x00"


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_traceback_is_shown_whole(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in (HEAD, *FRAMES * 4, RAISED)]
    assert tail_lines(tmp_path, *"abcdefg", *lines, prefix + "more") == [*lines, prefix + "more"]


def test_long_output_after_a_traceback_is_cut(tmp_path: Path) -> None:
    after = [f"more {number}" for number in range(50)]
    clipped = [*after[:3], "  ...", *after[-3:]]
    assert tail_lines(tmp_path, HEAD, *FRAMES, RAISED, *after) == [HEAD, *FRAMES, RAISED, *clipped]


@pytest.mark.parametrize("prefix", ["", "[rank12]: "])
def test_a_long_traceback_keeps_its_first_and_last_lines(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in (HEAD, *FRAMES * 30, RAISED)]
    found = tail_lines(tmp_path, *lines)
    assert found == [lines[0], prefix + "  ...", *lines[-18:]]
    assert len(found) == 20


def test_an_incomplete_traceback_is_shown(tmp_path: Path) -> None:
    lines = [HEAD, *FRAMES * 30]
    assert tail_lines(tmp_path, *lines) == [HEAD, "  ...", *lines[-18:]]
    assert tail_lines(tmp_path, HEAD) == [HEAD]
