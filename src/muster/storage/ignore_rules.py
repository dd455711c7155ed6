"""Read ignore files and match paths against them as git does.

Source of the rules: gitignore(5), and git's wildmatch for what gitignore(5) does not specify. Names
are bytes, as in git: `?` matches one byte.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from msgspec import Struct

_CLASSES = {
    b"alnum": rb"0-9A-Za-z",
    b"alpha": rb"A-Za-z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"!-~",
    b"lower": rb"a-z",
    b"print": rb" -~",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t-\r",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9A-Fa-f",
}
_NAMED = re.compile(rb"\[:([^\]]*):\]")


class Rule(Struct, frozen=True):
    """One line of an ignore file."""

    pattern: re.Pattern[bytes]
    #: The line starts with `!`: matching paths are not ignored.
    keeps: bool
    #: The pattern applies to the path; otherwise to its last name.
    whole: bool
    folders_only: bool


def read_rules(content: bytes) -> tuple[Rule, ...]:
    """The rules of an ignore file, in order. Lines that are invalid in git are left out."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return tuple(rule for line in lines if (rule := _rule(line.removesuffix(b"\r"))) is not None)


def is_ignored(rules: Iterable[Rule], path: str, *, folder: bool) -> bool | None:
    """Whether a path, relative to the ignore file, is ignored; None if no rule matches it.

    The last matching rule decides. Parent folders are not matched: callers walk down and do not
    enter ignored folders.
    """
    whole = os.fsencode(path)
    name = whole.rpartition(b"/")[2]
    decision = None
    for rule in rules:
        if rule.folders_only and not folder:
            continue
        if rule.pattern.fullmatch(whole if rule.whole else name):
            decision = not rule.keeps
    return decision


def _rule(line: bytes) -> Rule | None:
    if not line or line.startswith(b"#"):
        return None
    text = _trim(line)
    keeps = text.startswith(b"!")
    text = text[keeps:]
    folders_only = text.endswith(b"/")
    text = text[: len(text) - folders_only]
    whole = b"/" in text
    # git matches the text before the first wildcard separately; `**` may follow it directly
    plain = re.match(rb"[^*?\[\\]*", text.removeprefix(b"/"))
    assert plain is not None, "the expression also matches the empty text"
    rest = _translate(text.removeprefix(b"/")[plain.end() :])
    if rest is None:
        return None
    pattern = re.compile(re.escape(plain.group()) + rest, re.DOTALL)
    return Rule(pattern, keeps, whole, folders_only)


def _trim(line: bytes) -> bytes:
    """The line without trailing spaces, except escaped ones."""
    end = len(line.rstrip(b" "))
    if end == len(line):
        return line
    escapes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + escapes % 2]


class _Block(Struct):
    """The part of a pattern between two `**`."""

    #: Expressions with a `*` between any two.
    parts: list[bytes]
    #: The expression for the `**` before the part.
    before: bytes = b""
    #: The expression for a `**` at the end of the pattern.
    rest: bytes = b""

    def expression(self) -> bytes:
        first, *others = self.parts
        # if another `*` follows, the first match of the text after a `*` is as good as any: no
        # backtracking, so that no pattern takes exponential time
        middle = b"".join(b"(?>[^/]*?%s)" % part for part in others[:-1])
        last = b"[^/]*" + others[-1] if others else b""
        return self.before + first + middle + last + self.rest


def _translate(glob: bytes) -> bytes | None:
    """The regular expression of a pattern; None if the pattern is invalid."""
    blocks, at = [_Block([b""])], 0
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            end = at
            while glob[end : end + 1] == b"*":
                end += 1
            free = end - at > 1 and (at == 0 or glob[at - 1 : at] == b"/")
            if free and glob[end : end + 1] == b"/":
                blocks.append(_Block([b""], b"(?:.*?/)??"))
                end += 1
            elif free and glob[end : end + 2] == b"\\/":
                blocks.append(_Block([b""], b".*?/"))
                end += 2
            elif free and end == len(glob):
                blocks[-1].rest = b".*"
            else:
                blocks[-1].parts.append(b"")
            at = end
            continue
        if char == b"?":
            token, at = b"[^/]", at + 1
        elif char == b"[":
            found = _translate_set(glob, at + 1)
            if found is None:
                return None
            token, at = found
        else:
            at += char == b"\\"
            if at == len(glob):
                return None
            token, at = re.escape(glob[at : at + 1]), at + 1
        blocks[-1].parts[-1] += token
    # no backtracking between two `**` either: the text after the second may start anywhere
    *before, last = (block.expression() for block in blocks)
    return b"".join(b"(?>%s)" % block for block in before) + last


def _translate_set(glob: bytes, at: int) -> tuple[bytes, int] | None:
    """The expression of a `[...]` whose content starts at `at`, and the offset after it."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    parts: list[bytes] = []
    start = at
    low: int | None = None  # the start of a range, if a `-` follows
    while at == start or glob[at : at + 1] != b"]":
        if at >= len(glob):
            return None
        named = _NAMED.match(glob, at)
        if named is not None:
            if named[1] not in _CLASSES:
                return None
            parts.append(_CLASSES[named[1]])
            at, low = named.end(), None
            continue
        reaches = glob[at : at + 1] == b"-" and low is not None
        reaches = reaches and glob[at + 1 : at + 2] not in (b"", b"]")
        at += reaches
        at += glob[at : at + 1] == b"\\"
        if at >= len(glob):
            return None
        if reaches and low is not None:
            if low <= glob[at]:
                parts.append(b"\\x%02x-\\x%02x" % (low, glob[at]))
            low = None
        else:
            low = glob[at]
            parts.append(b"\\x%02x" % low)
        at += 1
    inside = b"".join(parts)
    if negated:
        return b"[^/" + inside + b"]", at + 1
    return (b"(?!/)[" + inside + b"]" if inside else b"(?!)"), at + 1
