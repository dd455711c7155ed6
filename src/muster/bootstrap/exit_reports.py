"""Exit reports: the files in which nodes record how they ended, and the monitor that reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from muster.bootstrap.agent_process import NodeExit
from muster.bootstrap.heartbeats import HEARTBEAT_INTERVAL, FailureDetector, has_flag
from muster.bootstrap.roster import Member, Roster
from muster.bootstrap.workdir import WorkDir


class MemberExit(Struct, frozen=True):
    """How a member of the cluster ended."""

    rank: int
    run: str
    #: Its name in messages.
    name: str
    exit_code: int | None
    #: The signal that ended it; 0 for none.
    signal: int = 0
    why: str = ""
    #: Epoch seconds by the node's own clock.
    at: float = 0.0
    #: Whether its heartbeats stopped without an exit report.
    lost: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than with exit code 0."""
        return self.exit_code != 0

    def __str__(self) -> str:
        return (
            f"{self.name} stopped sending heartbeats" if self.lost else f"{self.name}: {self.why}"
        )


def write_exit(workdir: WorkDir, member: Member, why: str, end: NodeExit) -> None:
    """Report the end of this node. Raises EngineError."""
    report = {"why": why, "exit_code": end.exit_code, "signal": end.signal, "at": end.at}
    workdir.write(member.exit_file, report)


def read_exits(workdir: WorkDir, roster: Roster, members: Iterable[Member]) -> list[MemberExit]:
    """The exit reports that there are by now. Raises EngineError."""
    members = list(members)
    reports = workdir.read_many([member.exit_file for member in members])
    return [
        _exit(roster, member, report)
        for member in members
        if (report := reports.get(member.exit_file)) is not None
    ]


def read_failures(workdir: WorkDir, roster: Roster, members: Iterable[Member]) -> list[MemberExit]:
    """The exit reports of failed members. Raises EngineError."""
    return [found for found in read_exits(workdir, roster, members) if found.failed]


class Monitor:
    """Watches members for exit reports and missing heartbeats: a node that is killed reports
    nothing. Times are seconds of a monotonic clock."""

    def __init__(self, workdir: WorkDir, roster: Roster, members: Sequence[Member]) -> None:
        self._workdir = workdir
        self._roster = roster
        self._watched = [(m, FailureDetector(roster.cluster, workdir.interval)) for m in members]
        self._lost: list[MemberExit] = []
        self._due = 0.0

    @property
    def failures(self) -> list[MemberExit]:
        """The lost members, and those that have reported a failure. Raises EngineError."""
        members = [member for member, _ in self._watched]
        return [*self._lost, *read_failures(self._workdir, self._roster, members)]

    def check(self, now: float) -> MemberExit | None:
        """A member that was lost or has failed. Reads files once per heartbeat interval. Raises
        EngineError."""
        if now < self._due:
            return None
        self._due = now + HEARTBEAT_INTERVAL
        self.unconfirmed(now)
        return next(iter(self.failures), None)

    def unconfirmed(self, now: float) -> list[Member]:
        """Members that may or may not be alive: they have neither answered nor reported an exit,
        and their heartbeats have not been missing for long enough. Raises EngineError."""
        files = [name for m, _ in self._watched for name in (m.heartbeat_file, m.exit_file)]
        found = self._workdir.read_many(files)
        unconfirmed = []
        for member, detector in [*self._watched]:
            report, heartbeat = found.get(member.exit_file), found.get(member.heartbeat_file)
            if report is not None:
                if not _exit(self._roster, member, report).failed:
                    self._watched.remove((member, detector))
            elif member.heartbeat_file in found and detector.has_failed(heartbeat, now):
                self._watched.remove((member, detector))
                self._lost.append(_lost(self._roster, member))
            elif not has_flag(heartbeat, "answers", self._roster.cluster):
                unconfirmed.append(member)
        return unconfirmed


def _lost(roster: Roster, member: Member) -> MemberExit:
    rank = roster.members.index(member)
    return MemberExit(rank, member.run, roster.name_of(member), None, lost=True)


def _exit(roster: Roster, member: Member, report: Any) -> MemberExit:
    data = report if isinstance(report, dict) else {"exit_code": 0}
    code, number, at = data.get("exit_code"), data.get("signal"), data.get("at")
    return MemberExit(
        roster.members.index(member),
        member.run,
        roster.name_of(member),
        code if isinstance(code, int) else None,
        number if isinstance(number, int) else 0,
        str(data.get("why") or "the node failed"),
        float(at) if isinstance(at, (int, float)) else 0.0,
    )
