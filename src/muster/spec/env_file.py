"""Read files of environment variables, as docker and dotenv do (`.env`).

`K=V` a line, optionally after `export`; `#` starts a comment at the start of a line and after a
space. A value may be quoted, and then have several lines: literally in '...', with the escapes
\\n, \\r, \\t, \\", \\\\ and \\$ in "...". `K` alone takes the caller's value. References to other
variables ($K) are not replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from muster.errors import InvalidInput, Problem
from muster.spec.files import read_text

_BLANK = re.compile(r"[ \t]*(?:#.*)?$", re.MULTILINE)
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=#'\"]+)[ \t]*(=?)[ \t]*")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_PLAIN = re.compile(r"(?:[^\s#]|(?<!\s)#|[ \t]+(?![\s#]|$))*", re.MULTILINE)
_ESCAPE = re.compile(r"""\\([nrt"\\$])""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
#: Without the line, which may hold a secret.
_NOT_A_VARIABLE = Problem("", "the line is not K=V", "write K=V, or # before a comment")


class EnvEntry(NamedTuple):
    """A variable of a file."""

    name: str
    value: str
    line: int


def read_env_file(path: str, environ: Mapping[str, str]) -> list[EnvEntry]:
    """The variables of a file, in its order. environ: the caller's. Raises InvalidInput with every
    problem."""
    try:
        text = read_text(Path(path))
    except InvalidInput as error:
        where = f"--env-file {path}"
        raise InvalidInput(*(p._replace(path=where) for p in error.problems)) from None
    problems: list[Problem] = []
    found = []
    for entry in parse_env(text, environ):
        if isinstance(entry, EnvEntry):
            found.append(entry)
        else:
            problems.append(entry._replace(source=f"{path}:{entry.source}"))
    if problems:
        raise InvalidInput(*problems)
    return found


def parse_env(text: str, environ: Mapping[str, str]) -> Iterator[EnvEntry | Problem]:
    """The variables in a text, and problems whose `source` is the number of a line."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    at, line, counted = 0, 1, 0
    while at < len(text):
        line += text.count("\n", counted, at)
        counted = at
        if blank := _BLANK.match(text, at):
            at = blank.end() + 1
            continue
        entry, at = _entry(text, at, environ)
        if isinstance(entry, Problem):
            yield entry._replace(source=str(line))
        else:
            yield EnvEntry(*entry, line)


def _entry(text: str, at: int, environ: Mapping[str, str]) -> tuple[tuple[str, str] | Problem, int]:
    """The variable that starts here, and where the next line starts."""
    end = text.find("\n", at)
    next_line = (len(text) if end < 0 else end) + 1
    name = _NAME.match(text, at)
    if name is None:
        return _NOT_A_VARIABLE, next_line
    key, at = name[1], name.end()
    if not name[2]:
        if not _BLANK.match(text, at):
            return _NOT_A_VARIABLE, next_line
        if key not in environ:
            text = f"{key} is not set in your environment"
            return Problem("", text, f"write {key}=VALUE, or export it"), next_line
        return (key, environ[key]), next_line
    if not text.startswith(("'", '"'), at):
        plain = _PLAIN.match(text, at)
        return (key, plain[0] if plain else ""), next_line
    quoted = _QUOTED.match(text, at)
    if quoted is None:
        return Problem("", f"{key}: the quote {text[at]} is not closed", "close it"), next_line
    blank = _BLANK.match(text, quoted.end())
    if blank is None:
        problem = Problem("", f"{key}: text follows the closing quote", "quote the whole value")
        end = text.find("\n", quoted.end())
        return problem, (len(text) if end < 0 else end) + 1
    value = quoted[1] if quoted[1] is not None else _ESCAPE.sub(_unescape, quoted[2])
    return (key, value), blank.end() + 1


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])
