"""Shell commands as text: split into words, and searched for operators."""

from __future__ import annotations

import io
import re
import shlex

from muster.errors import Problem

#: Quoted text and substitutions, in which operators do not end the command.
_QUOTED = re.compile(
    r"""\\.|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|"(?:\\.|[^"\\])*\"""", re.DOTALL
)
_OPERATOR = re.compile(r"[;&|<>()\n]+")


def operator_in(text: str) -> str | None:
    """The first operator that ends or redirects the command: `&&`, `|`, `>`, the end of a line,
    ...; None if there is none."""
    found = _OPERATOR.search(_QUOTED.sub("_", text.strip()))
    return found and found.group()


def split_text(text: str) -> list[tuple[str, str]]:
    """The words as a shell splits them, each with the unparsed text that follows it. Raises
    ValueError if a quote is left open."""
    reader = io.StringIO(text)
    lexer = shlex.shlex(reader, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    found, at = [], 0
    while (word := lexer.get_token()) is not None:
        found.append((word, text[at:].strip()))
        at = reader.tell()
    return found


def words_of(text: str, path: str, problems: list[Problem]) -> list[str]:
    """`text` split as a shell does. If a quote is left open: no words, and a problem at `path`."""
    try:
        return shlex.split(text)
    except ValueError as error:
        problems.append(Problem(path, f"cannot be split into words: {text!r}: {error}"))
        return []
