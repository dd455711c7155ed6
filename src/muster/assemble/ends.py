"""What nodes leave behind when they end, for those who wonder where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from muster.assemble.beats import BEAT_PERIOD, Pulse
from muster.assemble.members import Assembly, Member
from muster.assemble.workdir import WorkDir


def say_ended(workdir: WorkDir, member: Member, why: str, code: int | None) -> None:
    """code: its exit code; None if its program never began. Raises EngineError."""
    workdir.write(member.end_file, {"why": why, "exit_code": code})


def still_there(workdir: WorkDir, members: Iterable[Member]) -> list[Member]:
    """Those that have not said that they have ended. Raises EngineError."""
    members = list(members)
    words = workdir.read_many([member.end_file for member in members])
    return [member for member in members if words.get(member.end_file) is None]


def lost_members(workdir: WorkDir, assembly: Assembly, among: Iterable[Member]) -> list[str]:
    """Those that have failed, and what they said of it. Raises EngineError."""
    words = ((member, workdir.read(member.end_file)) for member in among)
    return [
        f"{_called(assembly, member)}: {word.get('why', '')}"
        for member, word in words
        if _has_failed(word)
    ]


class Watch:
    """Whether members live whom the others cannot do without: one that was killed says nothing.

    now: seconds of a clock that only goes forward.
    """

    def __init__(self, workdir: WorkDir, assembly: Assembly, members: Sequence[Member]) -> None:
        self._workdir = workdir
        self._assembly = assembly
        self._pulses = [(m, Pulse(assembly.cluster, workdir.interval)) for m in members]
        self._due = 0.0

    def lost(self, now: float) -> str | None:
        """One that is gone, and for people what is known of it. Looks when it is time to. Raises
        EngineError."""
        if now < self._due:
            return None
        self._due = now + BEAT_PERIOD
        beats = self._workdir.read_many([member.beat_file for member, _ in self._pulses])
        for member, pulse in [*self._pulses]:
            if member.beat_file not in beats or not pulse.gone(beats[member.beat_file], now):
                continue
            word = self._workdir.read(member.end_file)
            if word is None:
                return f"{_called(self._assembly, member)} is gone without a word"
            if _has_failed(word):
                return f"{_called(self._assembly, member)}: {word.get('why', '')}"
            self._pulses.remove((member, pulse))  # its work is done
        return None


def _has_failed(word: Any) -> bool:
    return isinstance(word, dict) and word.get("exit_code") != 0


def _called(assembly: Assembly, member: Member) -> str:
    return f"node-{assembly.members.index(member)} ({member.address})"
