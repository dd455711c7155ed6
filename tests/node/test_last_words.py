"""The end of what a program wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.node.last_words import last_words, size_of

HEAD = "Traceback (most recent call last):"
FRAMES = ['  File "train.py", line 3, in <module>', "    main()"]
RAISED = "RuntimeError: boom"


def words(folder: Path, *lines: str, before: str = "") -> list[str]:
    path = folder / "err"
    path.write_text(before + "\n".join(lines) + "\n")
    return last_words(str(path), len(before)).splitlines()


def test_the_last_lines(tmp_path: Path) -> None:
    assert words(tmp_path, *"abcdefg") == list("cdefg")
    assert words(tmp_path, "a", "", "  ", " b  ") == ["a", " b"]
    assert words(tmp_path, "") == []


def test_only_what_this_life_wrote(tmp_path: Path) -> None:
    assert words(tmp_path, "c", before="a\nb\n") == ["c"]
    assert words(tmp_path, "", before="a\nb\n") == []


def test_a_file_that_was_written_anew_is_all_this_life_s(tmp_path: Path) -> None:
    (tmp_path / "err").write_text("new\n")
    assert last_words(str(tmp_path / "err"), 1000) == "new"


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    assert last_words(str(tmp_path / "err"), 0) == ""
    assert size_of(str(tmp_path / "err")) == 0


def test_only_the_end_of_a_large_file_is_read(tmp_path: Path) -> None:
    (found,) = words(tmp_path, "x" * (1 << 20) + "end")
    assert len(found) == 4101
    assert found.endswith("end")


def test_what_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "err").write_bytes(b"\xff\xfe\n\x00")
    assert last_words(str(tmp_path / "err"), 0) == "\ufffd\ufffd\n\x00"


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
def test_a_traceback_is_more_than_the_last_lines(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in (HEAD, *FRAMES * 4, RAISED)]
    assert words(tmp_path, *"abcdefg", *lines, prefix + "more") == [*lines, prefix + "more"]


def test_what_follows_a_traceback_as_far_as_there_is_room(tmp_path: Path) -> None:
    after = [f"more {number}" for number in range(50)]
    clipped = [*after[:3], "  ...", *after[-3:]]
    assert words(tmp_path, HEAD, *FRAMES, RAISED, *after) == [HEAD, *FRAMES, RAISED, *clipped]


@pytest.mark.parametrize("prefix", ["", "[rank12]: "])
def test_a_long_traceback_keeps_its_first_and_last_lines(tmp_path: Path, prefix: str) -> None:
    lines = [prefix + line for line in (HEAD, *FRAMES * 30, RAISED)]
    found = words(tmp_path, *lines)
    assert found == [lines[0], prefix + "  ...", *lines[-18:]]
    assert len(found) == 20


def test_a_traceback_that_breaks_off(tmp_path: Path) -> None:
    lines = [HEAD, *FRAMES * 30]
    assert words(tmp_path, *lines) == [HEAD, "  ...", *lines[-18:]]
    assert words(tmp_path, HEAD) == [HEAD]
