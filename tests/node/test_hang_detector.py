"""Programs that stop writing, by the test's own clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.node.hang_detector import HangDetector

WALL = 1_700_000_000.0  # the files' time when the caller's clock was 0


def write(path: Path, at: float) -> None:
    """Append a line at a time of the caller's clock."""
    with path.open("a") as file:
        file.write("x\n")
    os.utime(path, (WALL + at, WALL + at))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "out", tmp_path / "err"]
    for path in made:
        write(path, -100)
    return made


def watch(files: list[Path]) -> HangDetector:
    return HangDetector([str(path) for path in files], 10.0, 0.0)


def test_a_program_without_output_hangs(files: list[Path]) -> None:
    detector = watch(files)
    assert detector.due == 10
    detector.step(9.9, WALL + 9.9)
    assert not detector.failed
    detector.step(10, WALL + 10)
    assert detector.failed == "nothing was written for 10 s"
    assert detector.due is None


def test_output_in_any_file_counts(files: list[Path]) -> None:
    detector = watch(files)
    for number, at in enumerate((4.0, 13.0, 22.5)):
        write(files[number % 2], at)
        assert detector.due is not None
        detector.step(detector.due, WALL + detector.due)
        assert detector.due == pytest.approx(at + 10)
    detector.step(32.5, WALL + 32.5)
    assert detector.failed


def test_a_file_that_shrinks_or_is_removed_counts_as_output(files: list[Path]) -> None:
    detector = watch(files)
    files[0].write_text("")
    detector.step(10, WALL + 10)
    files[1].unlink()
    detector.step(20, WALL + 20)
    assert not detector.failed
    detector.step(31, WALL + 31)
    assert detector.failed


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_setting_the_clock_is_not_a_hang(files: list[Path], jump: float) -> None:
    detector = watch(files)
    write(files[0], 4)
    detector.step(10, WALL + 10 + jump)
    assert detector.due == 20, "the file was written since the last step"
    detector.step(20, WALL + 20 + jump)
    assert detector.failed


def test_the_hang_timeout_can_be_reset(files: list[Path]) -> None:
    detector = watch(files)
    detector.reset(9)
    assert detector.due == 19


def test_output_that_is_discarded_never_hangs(tmp_path: Path) -> None:
    detector = HangDetector([os.devnull, str(tmp_path / "missing")], 10.0, 0.0)
    assert detector.due is None
    detector.step(1000, WALL)
    assert not detector.failed
