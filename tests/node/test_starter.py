"""The program that starts the node program where it may be missing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.engines.node_program import node_program, program_key
from muster.node import starter
from support.interpreters import python

CODE = Path(starter.__file__).read_text()
PROGRAM = node_program()
HEADER = f"{len(PROGRAM)} {hashlib.sha256(PROGRAM).hexdigest()}\n".encode()
UPLOADED = HEADER + PROGRAM
KEY = program_key()
STARTS, UPLOAD = b"muster-node\n", b"muster-node upload\n"


class Starter:
    """A starter that runs `muster-node --version`."""

    def __init__(self, cache: Path, interpreter: str = sys.executable) -> None:
        argv = [interpreter, "-ISc", CODE, KEY, "--version"]
        pipe = subprocess.PIPE
        environ = {"PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(cache), "HOME": "/nonexistent"}
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)

    def said(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, told: bytes = b"") -> tuple[int, bytes, str]:
        """Tell it something, and nothing more. Returns exit code, output and errors."""
        out, errors = self.process.communicate(told, timeout=120)
        return self.process.returncode, out, errors.decode()


def test_it_is_uploaded_once(tmp_path: Path) -> None:
    first = Starter(tmp_path)
    assert first.said() == UPLOAD
    code, out, errors = first.end(UPLOADED)
    assert (code, errors) == (0, "")
    assert out.startswith(b"muster-node ")
    second = Starter(tmp_path)
    assert second.said() == STARTS
    assert second.end() == (0, out, "")
    (folder,) = (tmp_path / "muster").iterdir()
    assert folder.name == f"node-{KEY}"
    assert list(folder.glob("muster/node/__pycache__/starter.*.pyc")), "it starts sooner"


def test_what_follows_the_upload_is_for_the_program(tmp_path: Path) -> None:
    """Not a byte more is read than the program has."""
    folder = tmp_path / "n"
    argv = [sys.executable, "-ISc", CODE, KEY, "open", str(folder)]
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        argv, input=UPLOADED + b"{}\n1", capture_output=True, env=environ, check=False, timeout=120
    )
    assert done.stdout == UPLOAD
    assert done.stderr.startswith(b"muster-node: the settings are invalid: "), done.stderr


def test_the_oldest_python(tmp_path: Path) -> None:
    one = Starter(tmp_path, python("3.9"))
    assert one.said() == UPLOAD
    code, out, errors = one.end(UPLOADED)
    assert (code, errors) == (0, "")
    assert out.startswith(b"muster-node ")


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8"])
def test_a_python_that_is_too_old_says_so(tmp_path: Path, version: str) -> None:
    interpreter = python(version)
    code, out, errors = Starter(tmp_path, interpreter).end()
    assert (code, out) == (1, b"")
    assert errors == f"Python 3.9 or newer is needed, and {interpreter} is {version}\n"


def test_python_2_refuses_the_option(tmp_path: Path) -> None:
    """`hosts.ssh.why` recognizes it."""
    code, out, errors = Starter(tmp_path, python("2.7")).end()
    assert (code, out) == (2, b"")
    assert "Unknown option: -I" in errors


def test_two_at_once(tmp_path: Path) -> None:
    both = [Starter(tmp_path) for _ in range(2)]
    assert [one.said() for one in both] == [UPLOAD, UPLOAD]
    for one in both:
        code, out, errors = one.end(UPLOADED)
        assert (code, out[:12], errors) == (0, b"muster-node ", "")
    assert len(list((tmp_path / "muster").iterdir())) == 1, "nothing is left of the second one"


@pytest.mark.parametrize("part", [b"", HEADER[:-1], HEADER, UPLOADED[:-1]])
def test_an_upload_that_breaks_off(tmp_path: Path, part: bytes) -> None:
    one = Starter(tmp_path)
    assert one.said() == UPLOAD
    assert one.end(part) == (1, b"", "the connection was closed\n")
    assert list(tmp_path.iterdir()) == []


def test_an_upload_of_something_else(tmp_path: Path) -> None:
    one = Starter(tmp_path)
    assert one.said() == UPLOAD
    code, out, errors = one.end(UPLOADED[:-1] + b"x")
    assert (code, out) == (1, b"")
    assert errors == "the node program cannot be stored: it has another digest\n"
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "muster").touch()
    one = Starter(tmp_path)
    assert one.said() == UPLOAD
    code, out, errors = one.end(UPLOADED)
    assert (code, out) == (1, b"")
    text = f"the node program cannot be stored: [Errno 17] File exists: '{tmp_path}/muster'\n"
    assert errors == text


def test_what_an_upload_left_that_was_killed_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "muster" / "part-abc"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    newer = tmp_path / "muster" / "part-xyz"
    newer.mkdir()
    one = Starter(tmp_path)
    assert one.said() == UPLOAD
    assert one.end(UPLOADED)[0] == 0
    assert not left.exists()
    assert newer.exists(), "it may be that of another process"
