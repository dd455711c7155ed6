"""Text that is meant for a shell: what of it only a shell can do."""

from __future__ import annotations

import io
import re
import shlex

#: Text that a shell takes apart into words and changes in no other way.
_WORDS = re.compile(r"""(?:[\w./:,@%+= \t-]|'[^']*'|"[^"$`\\]*")*""", re.ASCII)
#: What begins a command and is no program.
_BUILTIN = re.compile(
    r"\.|alias|case|cd|command|eval|exec|exit|export|for|function|if|local|read|readonly|return|set"
    r"|shift|shopt|source|time|trap|ulimit|umask|unset|until|wait|while"
)
#: Where operators mean nothing, or are those of another command.
_QUOTED = re.compile(
    r"""\\.|'[^']*'|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|"(?:\\.|[^"\\])*\"""", re.DOTALL
)
_OPERATOR = re.compile(r"[;&|<>()\n]+")


def needs_shell(text: str) -> bool:
    """Whether it is more than a program's name and arguments: variables, operators, patterns,
    builtins. Raises ValueError if a quote is left open."""
    words = shlex.split(text)
    return (
        _WORDS.fullmatch(text) is None
        or not words
        or _BUILTIN.fullmatch(words[0]) is not None
        or "=" in words[0]  # sets a variable
    )


def operator_in(text: str) -> str | None:
    """The first that ends or redirects a command: `&&`, `|`, `>`, the end of a line, ...; None if
    there is but one command."""
    found = _OPERATOR.search(_QUOTED.sub("_", text.strip()))
    return found and found.group()


def split_text(text: str) -> list[tuple[str, str]]:
    """Its words as a shell takes them apart, each with the text from there on, quotes and all.
    Raises ValueError if a quote is left open."""
    reader = io.StringIO(text)
    lexer = shlex.shlex(reader, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    found, at = [], 0
    while (word := lexer.get_token()) is not None:
        found.append((word, text[at:].strip()))
        at = reader.tell()
    return found
