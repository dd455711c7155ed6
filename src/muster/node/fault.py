"""Why a node failed: what went wrong first, and what its programs had to say about it."""

from __future__ import annotations

import signal
from typing import Any, Dict, List, Mapping, Sequence

from muster.node import error_file
from muster.node.last_words import last_words, size_of


class Fault:
    """The first failure in one life of a node, if there is one.

    launched: its processes, with `stderr` and, if they are told to note their errors, `error_file`;
    then the ranks that its launcher starts, with `stderr`.
    """

    def __init__(self, launched: Sequence[Mapping[str, Any]]) -> None:
        self._launched = launched
        self._written: List[int] = []  # bytes of stderr that were there before us, each process
        self._first: Dict[str, Any] | None = None
        self._at: int | None = None  # local rank
        self._explained = False

    @property
    def noted(self) -> bool:
        return self._first is not None

    def begin(self) -> None:
        """What is written from here on is this life's."""
        self._written = [size_of(process["stderr"]) for process in self._launched]

    def note(
        self,
        code: int | None,
        number: int,
        reason: str = "exit",
        message: str = "",
        at: int | None = None,
        explained: bool = False,
    ) -> None:
        """Something went wrong; nothing but the first matters. at: the local rank of the process
        at fault, if it was one of the program's. explained: nothing it wrote says more."""
        if self._first is None:
            self._at, self._explained = at, explained or bool(message)
            self._first = {
                "exit_code": code,
                "signal": number,
                "reason": reason,
                "message": message,
            }

    def verdict(self) -> Dict[str, Any]:
        """What there is to tell of the node's end."""
        if self._first is None:
            return {"exit_code": 0, "signal": 0, "reason": "exit", "message": ""}
        if self._explained or not self._first["exit_code"]:
            return self._first
        noted = None
        if self._at is not None and "error_file" in self._launched[self._at]:
            noted = error_file.read(self._launched[self._at]["error_file"])
        message = noted.message if noted is not None else ""
        return {
            **self._first,
            "message": message or self._last_words(_killed(self._first)),
            "raised_at": noted.at if noted is not None else None,
        }

    def _last_words(self, killed: bool) -> str:
        """Of the process at fault; if it had none, of the first that left any."""
        order = sorted(range(len(self._written)), key=lambda rank: rank != self._at)
        for rank in order:
            words = last_words(self._launched[rank]["stderr"], self._written[rank], killed)
            if words:
                return words
        return ""


def _killed(first: Mapping[str, Any]) -> bool:
    """Whether a signal ended it, or what a shell ran for it."""
    return bool(first["signal"]) or 128 < first["exit_code"] <= 128 + signal.NSIG
