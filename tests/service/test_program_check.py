"""Programs that nodes would not find are refused before the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.errors import InvalidInput

Problems = Callable[..., list[str]]


@pytest.fixture
def problems(client: Client, monkeypatch: pytest.MonkeyPatch) -> Problems:
    """What prevents the start of a command."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def found(command: Sequence[str] | str, **fields: Any) -> list[str]:
        job, new = client.job(command=command, **fields)
        return [str(problem) for problem in client.prepare_run(job, new_job=new).missing]

    return found


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", []),
        ("true && no-such-program", []),  # the shell finds it, or not
        (["/no/such/program"], []),  # perhaps in a mount
        ("no-such-program -x", ["command: there is no program no-such-program on PATH"]),
        (
            ["unamee"],
            ["command: there is no program unamee on PATH (did you mean uname?)"],
        ),
        (
            ["cd", "data"],
            [
                "command: cd is a command of the shell, not a program "
                "(run it in a shell: sh -c 'cd ... && ...')"
            ],
        ),
    ],
)
def test_programs_on_the_path(
    problems: Problems, command: Sequence[str] | str, expected: list[str]
) -> None:
    assert problems(command) == expected


def test_the_path_of_the_job_is_searched(problems: Problems, tmp_path: Path) -> None:
    (tmp_path / "tool").touch(0o755)
    assert problems("tool") != []
    assert problems("tool", env={"PATH": str(tmp_path)}) == []


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        (b"#!/bin/sh\n", 0o755, ""),
        (
            b"#!/bin/sh\n",
            0o644,
            "./a is not executable (make it executable with `chmod +x ./a`, or run `sh ./a`)",
        ),
        (
            b"#!/usr/bin/env sh\r\n",
            0o755,
            "the lines of ./a end as on Windows (CR LF), so it cannot be executed "
            "(convert it: sed -i 's/\\r$//' ./a)",
        ),
    ],
)
def test_files_of_the_directory_where_the_command_runs(
    problems: Problems, tmp_path: Path, content: bytes, mode: int, expected: str
) -> None:
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "a").chmod(mode)
    found = problems(["./a"], working_dir=str(tmp_path))
    assert found == ([f"command: {expected}"] if expected else [])
    (missing,) = problems(["./b"], working_dir=str(tmp_path))
    assert missing == f"command: there is no program ./b (it would be {tmp_path}/b)"
    (tmp_path / "sub").mkdir()
    (folder,) = problems(["./sub"], working_dir=str(tmp_path))
    assert folder == "command: ./sub is a folder, not a program (name a file in it)"
    (bare,) = problems(["a"], working_dir=str(tmp_path))
    assert bare == "command: there is no program a on PATH (for the file here, write ./a)"


def test_nothing_starts_if_the_program_is_missing(client: Client) -> None:
    job, new = client.job(command=["no-such-program"])
    with pytest.raises(InvalidInput, match="there is no program no-such-program on PATH"):
        client.start(client.prepare_run(job, new_job=new))
    assert client.runs() == []
