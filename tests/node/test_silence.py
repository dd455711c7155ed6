"""Programs that stop writing, by the test's own clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from muster.node.silence import Silence

WALL = 1_700_000_000.0  # the files' time when the caller's clock said 0


def write(path: Path, at: float) -> None:
    """A line, at a moment of the caller's clock."""
    with path.open("a") as file:
        file.write("x\n")
    os.utime(path, (WALL + at, WALL + at))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "out", tmp_path / "err"]
    for path in made:
        write(path, -100)
    return made


def watch(files: list[Path]) -> Silence:
    return Silence([str(path) for path in files], 10.0, 0.0)


def test_nothing_written(files: list[Path]) -> None:
    silence = watch(files)
    assert silence.due == 10
    silence.step(9.9, WALL + 9.9)
    assert not silence.failed
    silence.step(10, WALL + 10)
    assert silence.failed == "nothing was written for 10 s"
    assert silence.due is None


def test_any_file_will_do(files: list[Path]) -> None:
    silence = watch(files)
    for number, at in enumerate((4.0, 13.0, 22.5)):
        write(files[number % 2], at)
        assert silence.due is not None
        silence.step(silence.due, WALL + silence.due)
        assert silence.due == pytest.approx(at + 10)
    silence.step(32.5, WALL + 32.5)
    assert silence.failed


def test_a_file_that_shrinks_or_goes_is_a_sign_of_life(files: list[Path]) -> None:
    silence = watch(files)
    files[0].write_text("")
    silence.step(10, WALL + 10)
    files[1].unlink()
    silence.step(20, WALL + 20)
    assert not silence.failed
    silence.step(31, WALL + 31)
    assert silence.failed


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_is_no_silence(files: list[Path], jump: float) -> None:
    silence = watch(files)
    write(files[0], 4)
    silence.step(10, WALL + 10 + jump)
    assert silence.due == 20, "it was written at some time since the last look"
    silence.step(20, WALL + 20 + jump)
    assert silence.failed


def test_patience_can_be_renewed(files: list[Path]) -> None:
    silence = watch(files)
    silence.renew(9)
    assert silence.due == 19


def test_output_that_nobody_keeps_tells_nothing(tmp_path: Path) -> None:
    silence = Silence([os.devnull, str(tmp_path / "missing")], 10.0, 0.0)
    assert silence.due is None
    silence.step(1000, WALL)
    assert not silence.failed
