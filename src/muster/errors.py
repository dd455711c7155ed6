"""Errors a person can act on, and the exit code each kind ends a command with.

This module may be imported from every room. Anything that is not a `MusterError` is a defect of
Muster and is shown with its traceback; a `MusterError` never is.
"""

from __future__ import annotations

from typing import NamedTuple

from muster.escapes import visible_line

#: Documented exit codes of the `muster` command (docs/cli.md).
EXIT_OK = 0
EXIT_RUN_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_CANCELED = 3
EXIT_PLATFORM = 4
EXIT_INTERRUPTED = 130


class MusterError(Exception):
    """Root of all errors Muster raises on purpose.

    The text says what is wrong, where, and what to do about it.
    """

    exit_code: int = EXIT_PLATFORM


class Problem(NamedTuple):
    """One thing wrong with what the user gave.

    path: where, as a path into the spec (`node_groups[1].env.PATH`), a flag (`--nodes`) or "".
    message: what is wrong, with the offending value.
    hint: what to do, or "".
    source: file and line (`job.yaml:12`) where known, or "".
    """

    path: str
    message: str
    hint: str = ""
    source: str = ""

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.source, self.path) if part)
        text = f"{where}: {self.message}" if where else self.message
        # one line, whatever the name of a file or a value in it holds
        return visible_line(f"{text} ({self.hint})" if self.hint else text)


class InvalidInput(MusterError):  # noqa: N818
    """What the user gave cannot be used; every problem is reported together."""

    exit_code = EXIT_BAD_INPUT

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(p if isinstance(p, Problem) else Problem("", p) for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class NotFound(InvalidInput):
    """No job, run or artifact goes by the name or id that was given."""


class StoreError(MusterError):
    """The database or MUSTER_HOME cannot be used (unwritable, full, corrupt): the user's to mend,
    so it counts as bad input."""

    exit_code = EXIT_BAD_INPUT


class StoreBusy(StoreError):  # noqa: N818
    """The database cannot be written right now, but may be later: another process holds it, or
    the disk is full."""


class RunFailed(MusterError):  # noqa: N818
    """A run whose result was asked for has none: it failed, was canceled or is suspended."""

    exit_code = EXIT_RUN_FAILED


class EngineError(MusterError):
    """The engine could not do what was asked of it."""
