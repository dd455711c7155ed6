"""Users' regular expressions: RE2's syntax, as in JobSet (Go), matched by RE2.

RE2 does not backtrack: the time of a search is proportional to the text and to the size of the
compiled pattern, which is limited here. Python's `re` can take exponential time. RE2 is imported
only if there is a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from muster.spec.wording import Refused, short

if TYPE_CHECKING:
    import re2

#: Maximum characters of a pattern.
MAX_LENGTH = 4096
#: Maximum instructions of a compiled pattern. At this size, searching the stderr tail of a node
#: takes a few seconds at worst.
_MAX_PROGRAM_SIZE = 10_000
#: Maximum instructions of all patterns of a job together.
_MAX_TOTAL_SIZE = 4 * _MAX_PROGRAM_SIZE
#: Maximum patterns of a job, and size of the cache of compiled patterns.
_MAX_PATTERNS = 512
#: Maximum product of instructions and characters of text: half a minute of searching at worst.
_MAX_SEARCH_WORK = 1 << 36
#: RE2 reads repetitions with more than this many digits as text; Go refuses them.
_HUGE_REPETITION = r"(?<!\\)\{(?:\d+,)?\d{9,}[,}]"
_SYNTAX = "the syntax is RE2's: https://github.com/google/re2/wiki/Syntax"
_FEWER = "RE2 repeats up to 1000 times in all"
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")


def check_pattern(pattern: str) -> None:
    """Raises `Refused` with the position and RE2's reason if the pattern is invalid."""
    if len(pattern) > MAX_LENGTH:
        text = f"{short(pattern)} has {len(pattern):,} characters"
        raise Refused(text, f"a regular expression can have {MAX_LENGTH:,}")
    if huge := re.search(_HUGE_REPETITION, pattern):
        text = f"{short(pattern)} is not a regular expression: invalid repetition size"
        raise Refused(f"{text} at character {huge.start() + 1}", _FEWER)
    import re2

    try:
        size = _size(pattern)
    except UnicodeEncodeError as error:
        text = f"{short(pattern)} has half a surrogate pair at character {error.start + 1}"
        raise Refused(text, "write the whole character") from None
    except re2.error as error:
        raise _refusal(pattern, error.args[0].decode(errors="replace")) from None
    if size > _MAX_PROGRAM_SIZE:
        raise Refused(*_too_large(pattern))


def check_together(patterns: Iterable[str]) -> None:
    """Raises `Refused` if these patterns together take too long to search for. Each must have
    passed `check_pattern`. The supervisor does nothing else while it searches."""
    total = 0
    for count, pattern in enumerate(dict.fromkeys(patterns), 1):
        if count > _MAX_PATTERNS:
            raise Refused(
                f"there are more than {_MAX_PATTERNS} regular expressions", "combine them: a|b"
            )
        total += _size(pattern)
        if total > _MAX_TOTAL_SIZE:
            text = "the regular expressions of all rules together are too large"
            raise Refused(text, "use smaller or fewer repetitions, or fewer patterns")


def max_text_length(patterns: Iterable[str]) -> int:
    """Maximum characters of text to search for these patterns, so that the search does not block
    the supervisor for long."""
    return _MAX_SEARCH_WORK // max(1, sum(map(_size, dict.fromkeys(patterns))))


def any_matches(patterns: Iterable[str], text: str) -> bool:
    """Whether one of the patterns is any_matches in the text."""
    encoded = text.encode(errors="replace")  # programs may write bytes that are not text
    return any(_compile(pattern).search(encoded) is not None for pattern in patterns)


def finder(pattern: str) -> Callable[[bytes], bool]:
    """Tells whether a pattern, which must have passed `check_pattern`, is found in a text."""
    search = _compile(pattern).search
    return lambda text: search(text) is not None


def _size(pattern: str) -> int:
    size: int = _compile(pattern).programsize
    return size


@lru_cache(maxsize=_MAX_PATTERNS)
def _compile(pattern: str) -> re2._Regexp:
    import re2

    options = re2.Options()
    options.log_errors = False  # RE2 writes them to standard error
    options.never_capture = True
    return re2.compile(pattern, options)


def _too_large(pattern: str) -> tuple[str, str]:
    text = f"{short(pattern)} is too large a regular expression"
    return text, "use smaller or fewer repetitions"


def _refusal(pattern: str, reason: str) -> Refused:
    """The error for RE2's reason, such as "missing ]: [a-z", with part of the pattern last."""
    what, _, part = reason.partition(": ")
    if what.startswith("pattern too large"):
        return Refused(*_too_large(pattern))
    if part == "(?P" and _place(pattern, "(?P=") is not None:
        part = "(?P="  # RE2 reports only the first characters
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
    return Refused(f"{short(pattern)} is not a regular expression: {what}{where}", hint)


def _place(pattern: str, part: str) -> int | None:
    """Position of `part` in the pattern, ignoring occurrences that start inside an escape."""
    tokens = re.finditer(r"\\?.", pattern, re.DOTALL) if part else iter(())
    starts = (token.start() for token in tokens)
    return next((start for start in starts if pattern.startswith(part, start)), None)
