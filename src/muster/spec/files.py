"""Read text files named by users. Devices, pipes and files over a size limit are refused."""

from __future__ import annotations

import codecs
import os
import stat
import sys
from functools import cache
from pathlib import Path
from typing import IO

from muster.errors import InvalidInput, NotFound, Problem
from muster.spec.quantities import format_size

#: Standard input, as with kubectl.
STDIN = Path("-")
#: Maximum size in bytes, enough for some hundred thousand lines.
MAX_TEXT = 4 * 2**20
#: Byte order mark -> encoding (YAML 1.2, 5.2). Default: UTF-8.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its prefix
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_KINDS = (
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)


def read_text(path: Path, limit: int = MAX_TEXT) -> str:
    """Read a text file. limit: its maximum size in bytes. Raises InvalidInput."""
    try:
        data = _standard_input(limit) if path == STDIN else _bytes(path, limit)
    except FileNotFoundError:
        hint = similar(path) or "check the path"
        raise NotFound(Problem(str(path), "no such file", hint)) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    except ValueError as error:  # a NUL in the path
        raise _unreadable(path, str(error)) from None
    try:
        return decoded(data)
    except UnicodeDecodeError:
        raise _unreadable(path, "it is not UTF-8 text") from None


def similar(missing: Path) -> str:
    """A hint with a similar file name in the same directory; "" if there is none."""
    from muster.spec.wording import close_to

    try:
        there = os.listdir(missing.parent)
    except OSError:
        return ""
    close = close_to(missing.name, there)
    return f'did you mean "{close[0]}"?' if close else ""


def shown_name(path: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if path == STDIN else str(path)


def decoded(data: bytes) -> str:
    """Decode a file's content by its byte order mark and convert line ends to line feeds. Raises
    UnicodeDecodeError."""
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")


@cache
def _standard_input(limit: int) -> bytes:
    """Standard input, which can be read only once."""
    return _read_bounded(sys.stdin.buffer, STDIN, limit)


def _bytes(path: Path, limit: int) -> bytes:
    # opening a pipe without a writer would block
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        for is_kind, what in _KINDS:
            if is_kind(found.st_mode):
                raise _unreadable(path, what, "copy it into a file")
        return _read_bounded(file, path, limit)


def _read_bounded(file: IO[bytes], path: Path, limit: int) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        text = f"it is larger than {format_size(limit)}"
        raise _unreadable(path, text, "put large values into files")
    return data


def _unreadable(path: Path, reason: str, hint: str = "") -> InvalidInput:
    return InvalidInput(Problem(shown_name(path), f"cannot be read: {reason}", hint))
