"""Shell commands as text: split into words, and checked for what only a shell can run."""

from __future__ import annotations

import io
import re
import shlex

from muster.errors import Problem

#: Text that a shell splits into words without any expansion.
_WORDS = re.compile(r"""(?:[\w./:,@%+= \t-]|'[^']*'|"[^"$`\\]*")*""", re.ASCII)
#: First words of commands that are not programs.
_BUILTIN = re.compile(
    r"\.|alias|case|cd|command|eval|exec|exit|export|for|function|if|local|read|readonly|return|set"
    r"|shift|shopt|source|time|trap|ulimit|umask|unset|until|wait|while"
)
#: Quoted text and substitutions, in which operators do not end the command.
_QUOTED = re.compile(
    r"""\\.|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|"(?:\\.|[^"\\])*\"""", re.DOTALL
)
_OPERATOR = re.compile(r"[;&|<>()\n]+")


def needs_shell(text: str) -> bool:
    """Whether the text has variables, operators, patterns or builtins besides a program's name and
    arguments. Raises ValueError if a quote is left open."""
    words = shlex.split(text)
    return (
        _WORDS.fullmatch(text) is None
        or not words
        or _BUILTIN.fullmatch(words[0]) is not None
        or "=" in words[0]  # sets a variable
    )


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
