"""Regular expressions of users, in RE2's syntax: what JobSet's (Go's) patterns are written in.

RE2 does not backtrack: a search takes time in proportion to the text and to the size of the
compiled pattern, which is bounded here. `re` can take for ever on either. RE2 is imported only
where somebody has a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from muster.spec.wording import Refused, short

if TYPE_CHECKING:
    import re2

#: Characters of a pattern.
LONGEST = 4096
#: Instructions of a compiled pattern. One of this size takes a few seconds at worst for the last
#: words of a node.
_LARGEST = 10_000
#: Of all patterns of a job together.
_LARGEST_OF_ALL = 4 * _LARGEST
#: Patterns of a job: so many are kept compiled.
_MOST = 512
#: Instructions times characters of text: half a minute of searching at worst.
_WORK = 1 << 36
#: RE2 takes numbers of this length as text, Go refuses them.
_ENDLESS = re.compile(r"(?<!\\)\{(?:\d+,)?\d{9,}[,}]")
_SYNTAX = "the syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
_FEWER = "RE2 repeats up to 1000 times in all"
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")


def check_pattern(pattern: str) -> None:
    """Raises `Refused` if it cannot be matched, with the place and RE2's reason."""
    if len(pattern) > LONGEST:
        text = f"{short(pattern)} has {len(pattern):,} characters"
        raise Refused(text, f"a regular expression can have {LONGEST:,}")
    if endless := _ENDLESS.search(pattern):
        text = f"{short(pattern)} is no regular expression: invalid repetition size"
        raise Refused(f"{text} at character {endless.start() + 1}", _FEWER)
    import re2

    try:
        size = _size(pattern)
    except UnicodeEncodeError as error:
        text = f"{short(pattern)} is no text: half a character, number {error.start + 1}"
        raise Refused(text, "write it as a whole") from None
    except re2.error as error:
        raise _refused(pattern, error.args[0].decode(errors="replace")) from None
    if size > _LARGEST:
        raise Refused(*_too_large(pattern))


def check_together(patterns: Iterable[str]) -> None:
    """Raises `Refused` if all these patterns, each of which was checked, are too much to look for
    in one failure: a supervisor does nothing else meanwhile."""
    total = 0
    for count, pattern in enumerate(dict.fromkeys(patterns), 1):
        if count > _MOST:
            raise Refused(f"there are more than {_MOST} regular expressions", "write a|b for two")
        total += _size(pattern)
        if total > _LARGEST_OF_ALL:
            text = "the regular expressions of all rules together are too large"
            raise Refused(text, "repeat fewer things, or fewer times; leave some out")


def allowance(patterns: Iterable[str]) -> int:
    """Characters of text in which all of the patterns, which were checked, can be looked for
    without holding up for long whoever does."""
    return _WORK // max(1, sum(map(_size, dict.fromkeys(patterns))))


def found(patterns: Iterable[str], text: str) -> bool:
    """Whether one of the patterns, which were checked, is found in the text."""
    encoded = text.encode(errors="replace")  # what programs write need not be text
    return any(_compiled(pattern).search(encoded) is not None for pattern in patterns)


def _size(pattern: str) -> int:
    size: int = _compiled(pattern).programsize
    return size


@lru_cache(maxsize=_MOST)
def _compiled(pattern: str) -> re2._Regexp:
    import re2

    options = re2.Options()
    options.log_errors = False  # they go to standard error
    options.never_capture = True
    return re2.compile(pattern, options)


def _too_large(pattern: str) -> tuple[str, str]:
    text = f"{short(pattern)} is too large a regular expression"
    return text, "repeat fewer things, or fewer times"


def _refused(pattern: str, reason: str) -> Refused:
    """reason: as in "missing ]: [a-z", where what follows is a part of the pattern."""
    what, _, part = reason.partition(": ")
    if what.startswith("pattern too large"):
        return Refused(*_too_large(pattern))
    if part == "(?P" and _place(pattern, "(?P=") is not None:
        part = "(?P="  # RE2 does not say which of them
    hint = _SYNTAX
    if part.startswith(_LOOKAROUND):
        what, hint = f"lookaround {part} is not supported", f"leave it out; {_SYNTAX}"
    elif re.fullmatch(r"\\[1-9]", part) or part == "(?P=":
        what, hint = f"backreference {part} is not supported", f"leave it out; {_SYNTAX}"
    elif part == r"\Z":
        what, hint = r"invalid escape sequence \Z", r"write \z for the end of the text"
    elif what == "invalid repetition size":
        hint = _FEWER
    elif part and part != pattern:
        what = f"{what} {short(part)}"
    place = _place(pattern, part) if part != pattern else None
    where = "" if place is None else f" at character {place + 1}"
    return Refused(f"{short(pattern)} is no regular expression: {what}{where}", hint)


def _place(pattern: str, part: str) -> int | None:
    """Where a part of the pattern stands; an escaped character does not begin one."""
    tokens = re.finditer(r"\\?.", pattern, re.DOTALL) if part else iter(())
    starts = (token.start() for token in tokens)
    return next((start for start in starts if pattern.startswith(part, start)), None)
