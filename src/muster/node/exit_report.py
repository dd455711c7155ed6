"""Why a node failed: the first failure, and what its program wrote about it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, List, Sequence

from muster.node import error_file
from muster.node.files import file_size, open_regular
from muster.node.launch_message import OutputFiles, ProcessLaunch
from muster.node.messages import ExitReport

if TYPE_CHECKING:
    from muster.node.failure_text import Explanation

_TAIL_BYTES = 64 << 10


class ExitReporter:
    """Collects what the exit report of an incarnation needs.

    launched: the processes of the program, by local rank. ranks: of those that a launcher starts.
    """

    def __init__(self, launched: Sequence[ProcessLaunch], ranks: Sequence[OutputFiles]) -> None:
        self._launched = launched
        self._stderrs = [*(process.stderr for process in launched), *(r.stderr for r in ranks)]
        self._offsets: List[int] = []  # size of each stderr file before the incarnation
        self._first: ExitReport | None = None
        self._local_rank: int | None = None
        self._explained = False

    @property
    def failed(self) -> bool:
        """Whether a failure was recorded."""
        return self._first is not None

    def start(self) -> None:
        """Record where the output of this incarnation starts."""
        self._offsets = [file_size(path) for path in self._stderrs]

    def record(
        self,
        code: int | None,
        number: int,
        reason: str = "exit",
        message: str = "",
        local_rank: int | None = None,
        explained: bool = False,
    ) -> None:
        """Record a failure; only the first one counts.

        local_rank: of the process that failed, if it is one of the program's. explained: no output
        of the program can explain the failure better.
        """
        if self._first is None:
            self._local_rank, self._explained = local_rank, explained or bool(message)
            self._first = ExitReport(code, number, reason, message)

    def report(self) -> ExitReport:
        """The exit report. Its message is, in this order: the given one, the error that the failed
        process recorded, the end of its stderr, the end of another process's stderr."""
        first = self._first
        if first is None:
            return ExitReport(0, 0, "exit")
        if self._explained or not first.exit_code:
            return first
        recorded = self._recorded_error()
        message = recorded.message if recorded is not None else ""
        return first._replace(
            message=message or self._stderr_tail(_was_killed(first)),
            raised_at=recorded.raised_at if recorded is not None else None,
        )

    def _recorded_error(self) -> error_file.RecordedError | None:
        path = None if self._local_rank is None else self._launched[self._local_rank].error_file
        return None if path is None else error_file.read(path)

    def _stderr_tail(self, killed: bool) -> str:
        order = sorted(range(len(self._offsets)), key=lambda rank: rank != self._local_rank)
        for rank in order:
            found = _explanation(self._stderrs[rank], self._offsets[rank], killed)
            if found is not None:
                return _message(found, killed)
        return ""


def _was_killed(report: ExitReport) -> bool:
    """Whether a signal ended the process, or a command that a shell ran for it."""
    code = report.exit_code or 0
    return bool(report.signal) or 128 < code <= 128 + signal.NSIG


def stderr_tail(path: str, since: int, killed: bool = False) -> str:
    """The lines that explain a failure, or else the last lines, of a file from byte `since` on.

    since: size of the file before the process started. A file that is shorter now was rewritten
    and counts whole. killed: a signal ended the process.
    """
    found = _explanation(path, since, killed)
    return "\n".join(found.lines) if found is not None else ""


def _explanation(path: str, since: int, killed: bool) -> "Explanation | None":
    """None if the process wrote nothing."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(since if since <= size else 0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        text = ""  # a program may remove its own output
    if not text.strip():
        return None
    from muster.node.failure_text import explain

    return explain(text, killed)


def _message(found: "Explanation", killed: bool) -> str:
    """The lines as a message. Those of a killed process that explain nothing are named as such."""
    from muster.node.failure_text import LAST_LINE, LAST_LINES

    lines = found.lines
    if killed and found.unexplained:
        lines = [LAST_LINE if len(lines) == 1 else LAST_LINES, *lines]
    return "\n".join(lines)
