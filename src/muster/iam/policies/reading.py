"""A line as it is read: what it says, what is wrong with it, and how to correct it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lark import Token, Tree

from muster.iam.policies.findings import Finding, Severity


class Edit(NamedTuple):
    """A part of the text, and what it should be."""

    start: int
    end: int
    text: str


class _Note(NamedTuple):
    start: int
    length: int
    severity: Severity
    sentence: str
    has_fix: bool
    hint: str


class Reading:
    """A line as it is read: its tree, what is wrong with it, and how to correct it."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.text = line.strip()
        """The statement, without comments."""
        self.tree: Tree[Token] | None = None
        """None if it cannot be read at all."""
        self.result: object = None
        """What the line says; None if something is wrong with it."""
        self.edits: list[Edit] = []
        self.correction = ""
        """The whole line as it should be; "" if that is not clear."""
        self._notes: list[_Note] = []
        self._settled: set[int] = set()

    @property
    def is_wrong(self) -> bool:
        """Whether there is an error."""
        return any(note.severity is Severity.ERROR for note in self._notes)

    def note(
        self,
        token: Token,
        sentence: str,
        fix: str = "",
        hint: str = "",
        *,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Note what is wrong with a token. fix: what to write in its place, if that is clear. hint:
        what to do if it is not."""
        if token.start_pos is None or token.end_pos is None:  # put in by a repair
            return
        if token.start_pos in self._settled:
            return
        start, end = token.start_pos, token.end_pos
        self.note_at(start, end - start, sentence, hint, severity=severity, has_fix=bool(fix))
        if fix:
            self.edit(start, end, fix)

    def note_at(
        self,
        start: int,
        length: int,
        sentence: str,
        hint: str = "",
        *,
        severity: Severity = Severity.ERROR,
        has_fix: bool = False,
    ) -> None:
        """Note what is wrong with a part of the line."""
        self._notes.append(_Note(start, length, severity, sentence, has_fix, hint))

    def settle(self, token: Token) -> None:
        """Note nothing more about a token."""
        if token.start_pos is not None:
            self._settled.add(token.start_pos)

    def edit(self, start: int, end: int, text: str) -> None:
        """Correct a part of the line, unless it is corrected already."""
        if not any(one.start < end and start < one.end for one in self.edits):
            self.edits.append(Edit(start, end, text))

    def corrected(self) -> str:
        """The line with all corrections."""
        parts, at = [], 0
        for edit in sorted(self.edits, key=lambda one: (one.start, one.end)):
            parts += [self.line[at : edit.start], edit.text]
            at = edit.end
        return ("".join(parts) + self.line[at:]).strip()

    def findings(self, source: str, number: int) -> Iterator[Finding]:
        """What is wrong, in the order of the text. number: of the line."""
        for note in sorted(self._notes, key=lambda one: one.start):
            fix = self.correction if note.has_fix else ""
            yield Finding(
                note.severity,
                source,
                number,
                note.start + 1,
                max(1, note.length),
                note.sentence,
                self.line,
                fix or note.hint,
                bool(fix),
            )
