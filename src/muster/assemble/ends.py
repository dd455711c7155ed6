"""What nodes leave behind when they end, for those who wonder where they are."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from muster.assemble.beats import BEAT_PERIOD, Pulse, says
from muster.assemble.members import Assembly, Member
from muster.assemble.running import NodeEnd
from muster.assemble.workdir import WorkDir


class Failed(Struct, frozen=True):
    """A member that has failed. called: for people; why: what it said of it, empty if it was gone
    without a word; at: epoch seconds, by its own clock."""

    run: str
    called: str
    why: str = ""
    signal: int = 0
    at: float = 0.0

    def __str__(self) -> str:
        return f"{self.called}: {self.why}" if self.why else f"{self.called} is gone without a word"


def say_ended(workdir: WorkDir, member: Member, why: str, end: NodeEnd) -> None:
    """Raises EngineError."""
    word = {"why": why, "exit_code": end.exit_code, "signal": end.signal, "at": end.at}
    workdir.write(member.end_file, word)


def still_there(workdir: WorkDir, members: Iterable[Member]) -> list[Member]:
    """Those that have not said that they have ended. Raises EngineError."""
    members = list(members)
    words = workdir.read_many([member.end_file for member in members])
    return [member for member in members if words.get(member.end_file) is None]


def failed_members(workdir: WorkDir, assembly: Assembly, among: Iterable[Member]) -> list[Failed]:
    """Those that have said that they failed. Raises EngineError."""
    members = list(among)
    words = workdir.read_many([member.end_file for member in members])
    return [
        _failed(assembly, member, words[member.end_file])
        for member in members
        if _has_failed(words.get(member.end_file))
    ]


def called(assembly: Assembly, member: Member) -> str:
    """A member, for people."""
    return f"node-{assembly.members.index(member)} ({member.address})"


def first_cause(failures: Iterable[Failed]) -> Failed:
    """The one that most likely caused the others: one that could not even say that it failed; then
    who was not merely told to end, or wrote to a peer that was gone; then the first."""
    return min(failures, key=lambda one: (bool(one.why), one.signal in _ECHOES, one.at))


#: What ends a program when others have failed.
_ECHOES = (signal.SIGTERM, signal.SIGPIPE)


class Watch:
    """Whether members live whom the others cannot do without: one that was killed says nothing.

    now: seconds of a clock that only goes forward.
    """

    def __init__(self, workdir: WorkDir, assembly: Assembly, members: Sequence[Member]) -> None:
        self._workdir = workdir
        self._assembly = assembly
        self._pulses = [(m, Pulse(assembly.cluster, workdir.interval)) for m in members]
        self._gone: list[Failed] = []
        self._due = 0.0

    @property
    def failed(self) -> list[Failed]:
        """Those that are gone, and those that have said that they failed. Raises EngineError."""
        members = [member for member, _ in self._pulses]
        return [*self._gone, *failed_members(self._workdir, self._assembly, members)]

    def lost(self, now: float) -> Failed | None:
        """One that is gone, or has failed. Looks when it is time to. Raises EngineError."""
        if now < self._due:
            return None
        self._due = now + BEAT_PERIOD
        self.silent(now)
        return next(iter(self.failed), None)

    def silent(self, now: float) -> list[Member]:
        """Those of whom it is not known whether they live: they have not answered, have not said
        how they ended, and have not been silent for long enough to be gone. Raises EngineError."""
        files = [name for m, _ in self._pulses for name in (m.beat_file, m.end_file)]
        found = self._workdir.read_many(files)
        silent = []
        for member, pulse in [*self._pulses]:
            word, beat = found.get(member.end_file), found.get(member.beat_file)
            if word is not None:
                if not _has_failed(word):
                    self._pulses.remove((member, pulse))  # its work is done
            elif member.beat_file in found and pulse.gone(beat, now):
                self._pulses.remove((member, pulse))
                self._gone.append(Failed(member.run, called(self._assembly, member)))
            elif not says(beat, "answers", self._assembly.cluster):
                silent.append(member)
        return silent


def _has_failed(word: Any) -> bool:
    return isinstance(word, dict) and word.get("exit_code") != 0


def _failed(assembly: Assembly, member: Member, word: Any) -> Failed:
    number, at = word.get("signal"), word.get("at")
    return Failed(
        member.run,
        called(assembly, member),
        str(word.get("why") or "it failed"),
        number if isinstance(number, int) else 0,
        float(at) if isinstance(at, (int, float)) else 0.0,
    )
