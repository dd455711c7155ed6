"""Reads a line token by token, and continues after what does not fit. Pure.

Where a token does not fit, it is noted what is missing or wrong there, the text is corrected
(`corrections`), and reading continues: one pass finds everything, and the corrected text can be
shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, cast

from lark import Token, Tree, UnexpectedToken

from muster.iam.policies.grammar import END, parser, tokens_of
from muster.iam.policies.reading import Edit, Reading

if TYPE_CHECKING:
    from lark.parsers.lalr_interactive_parser import InteractiveParser

_NOT_SUPPORTED = {
    "deny": "Deny is not supported: what no statement allows is denied",
    "define": "Define is not supported: it is for several tenancies, and a server is one",
    "endorse": "Endorse is not supported: it is for several tenancies, and a server is one",
    "admit": "Admit is not supported: it is for several tenancies, and a server is one",
}
_LONGEST_LINE = 10_000
#: The functions that read conditions call themselves for each level.
_DEEPEST = 20
_MOST_CORRECTIONS = 20


class Reader:
    """Feeds tokens to the parser, and others where they do not fit."""

    def __init__(self, reading: Reading, tokens: list[Token], start: str) -> None:
        """start: `statement` or `rule`."""
        self.reading = reading
        self.start = start
        self.left = deque(tokens)
        """Tokens that are not read yet."""
        self.fed: list[Token] = []
        """What the parser has got."""
        self._parser: InteractiveParser = parser().parse_interactive("", start=start)
        end = len(reading.line.rstrip())
        if tokens and tokens[-1].end_pos is not None:
            end = tokens[-1].end_pos
        self.end = Token(END, "", end, end_pos=end)

    def read(self, correct: Correct) -> Tree[Token] | None:
        """The tree; None if the text cannot be read, even corrected."""
        corrections = 0
        while True:
            token = self.left[0] if self.left else self.end
            try:
                result = self._parser.feed_token(token)
            except UnexpectedToken:
                corrections += 1
                if corrections > _MOST_CORRECTIONS or not correct(self, token, self._accepted()):
                    return None
                continue
            if token.type == END:
                return cast("Tree[Token]", result)
            self.fed.append(token)
            self.left.popleft()

    def _accepted(self) -> set[str]:
        """The types of tokens that fit next."""
        found: set[str] = self._parser.accepts()  # type: ignore[no-untyped-call]
        return found

    # -- what fits ---------------------------------------------------------------------------------

    @property
    def after(self) -> Token:
        """The token after the next one."""
        return self.left[1] if len(self.left) > 1 else self.end

    def fits(self, token: Token, before: list[Token]) -> bool:
        """Whether a token would fit after others."""
        trial: InteractiveParser = self._parser.copy()  # type: ignore[no-untyped-call]
        try:
            for one in (*before, token):
                trial.feed_token(one)
        except UnexpectedToken:
            return False
        return True

    # -- reading another token: each returns True, since reading continues -------------------------

    def replace(self, kind: str, text: str) -> bool:
        """Read a token as another one, about which nothing more is noted."""
        token = self.left.popleft()
        self.left.appendleft(Token(kind, text, token.start_pos, end_pos=token.end_pos))
        self.reading.settle(token)
        return True

    def join(self, token: Token, kind: str, word: str, sentence: str) -> bool:
        """Read two words as the one that they are in the language."""
        start, end = span(token)[0], span(self.left[1])[1]
        self.reading.note_at(start, end - start, f"{sentence} `{word}`", has_fix=True)
        self.reading.edit(start, end, word)
        self.left.popleft()
        return self.replace(kind, word)

    def feed(self, token: Token) -> bool:
        """Feed a token that is not in the text."""
        self._parser.feed_token(token)
        self.fed.append(token)
        return True

    # -- notes and edits ---------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """Where something is missing: after the last token that was read."""
        read = [one.end_pos for one in self.fed if one.end_pos is not None]
        first = self.left[0].start_pos if self.left and not read else 0
        return read[-1] if read else first or 0

    def note_missing(
        self,
        sentence: str,
        token: Token | None = None,
        *,
        at: Token | None = None,
        has_fix: bool = True,
    ) -> None:
        """Note that something is missing before a token, or at the end."""
        start = self.at if at is None else span(at)[0]
        if token is not None and token.start_pos is not None and token.type != END:
            start = token.start_pos
        self.reading.note_at(start, 1, sentence, has_fix=has_fix)

    def insert(self, text: str, *, at: Token | None = None) -> None:
        """Correct the line by a text where something is missing, or before a token."""
        line = self.reading.line
        place = self.at if at is None else span(at)[0]
        if at is None:
            if place and not line[place - 1].isspace() and text not in ("}", ")", ","):
                text = f" {text}"
            if line[place : place + 1] not in ("", " ", ",", ")", "}"):
                text = f"{text} "
        self.reading.edits.append(Edit(place, place, text))


Correct: TypeAlias = Callable[[Reader, Token, set[str]], bool]
"""What to do about a token that does not fit: whether reading continues. Its parameters: the
reader, the token, and the types of tokens that fit."""


def read(line: str, start: str, correct: Correct) -> Reading:
    """Read a line. start: `statement` or `rule`."""
    reading = Reading(line)
    if len(line) > _LONGEST_LINE:
        sentence = f"the line has {len(line):,} characters, {_LONGEST_LINE:,} are allowed"
        reading.note_at(0, 1, sentence)
        return reading
    tokens = list(tokens_of(line))
    if not tokens:
        reading.note_at(0, 1, f"the {start} is empty", "write one, or leave it out")
        return reading
    first = tokens[0]
    reading.text = line[first.start_pos : tokens[-1].end_pos]
    if start == "statement" and first.lower() in _NOT_SUPPORTED:
        reading.note(first, _NOT_SUPPORTED[first.lower()], hint="leave the statement out")
        return reading
    if _note_not_printable(reading, tokens):
        return reading
    deep = _too_deep(tokens)
    if deep is not None:
        reading.note(deep, f"conditions are nested more than {_DEEPEST} times")
        return reading
    reading.tree = Reader(reading, tokens, start).read(correct)
    return reading


def _note_not_printable(reading: Reading, tokens: list[Token]) -> bool:
    """Whether there is a character that cannot be printed: nobody could tell the names and texts
    with it from those without. Spaces between words and comments may be anything."""
    wrong = [
        place
        for token in tokens
        for place in range(*span(token))
        if not reading.line[place].isprintable()
    ]
    for place in wrong:
        reading.edit(place, place + 1, "")
    if wrong:
        sentence = f"the character U+{ord(reading.line[wrong[0]]):04X} cannot be printed"
        reading.note_at(wrong[0], 1, sentence, "leave it out", has_fix=True)
    return bool(wrong)


def _too_deep(tokens: list[Token]) -> Token | None:
    depth = 0
    for token in tokens:
        depth += {"_LBRACE": 1, "_RBRACE": -1}.get(token.type, 0)
        if depth > _DEEPEST:
            return token
    return None


def span(token: Token) -> tuple[int, int]:
    """Where a token of the text begins and ends."""
    return token.start_pos or 0, token.end_pos or 0
