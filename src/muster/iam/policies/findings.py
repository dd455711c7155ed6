"""What is wrong with a policy, and where. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from muster.errors import Problem
from muster.escapes import visible_line


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """It cannot be read, or does not say what anybody can have meant."""
    WARNING = "warning"
    """It can be read, but does less or more than it seems to."""


class Finding(Struct, frozen=True):
    """One thing that is wrong with a statement or a rule."""

    severity: Severity
    source: str
    """The file or the policy; "" if there is no name."""
    line: int
    """From 1. Of a stored policy: the number of the statement."""
    column: int
    """From 1, in characters."""
    length: int
    """Characters that it is about; at least 1."""
    sentence: str
    text: str
    """The line."""
    suggestion: str = ""
    """What to write instead: a whole line, or a sentence if `is_correction` is False."""
    is_correction: bool = True

    @property
    def place(self) -> str:
        """`NAME:LINE:COLUMN`."""
        return ":".join([*filter(None, [self.source]), str(self.line), str(self.column)])

    def __str__(self) -> str:
        """Several lines: place and sentence, the line with carets below, what to write instead."""
        at = self.column - 1
        before = visible_line(self.text[:at])
        about = visible_line(self.text[at : at + self.length])
        lines = [
            f"{self.place}: {self.severity}: {self.sentence}",
            f"    {visible_line(self.text)}",
            f"    {' ' * len(before)}{'^' * max(1, len(about))}",
        ]
        if self.suggestion:
            start = "write: " if self.is_correction else ""
            lines.append(f"    {start}{visible_line(self.suggestion)}")
        return "\n".join(lines)

    @property
    def problem(self) -> Problem:
        """The same as a problem of the user's input, in one line."""
        hint = self.suggestion
        if hint and self.is_correction:
            hint = f"write: {hint}"
        return Problem("", self.sentence, hint, self.place)


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that are errors."""
    return tuple(one for one in findings if one.severity is Severity.ERROR)
