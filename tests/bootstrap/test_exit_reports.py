"""Exit reports of nodes, and the monitor that reads them."""

from __future__ import annotations

from muster.bootstrap.agent_process import NodeExit
from muster.bootstrap.exit_reports import Monitor, read_exits, read_failures, write_exit
from muster.bootstrap.roster import Member, Roster
from muster.bootstrap.workdir import WorkDir

MAIN = Member("m", "MAIN", "10.0.0.1", "a")
ONE = Member("x", "WORKER", "10.0.0.2", "b")
OTHER = Member("y", "WORKER", "10.0.0.3", "c")
ROSTER = Roster("ours", "t", (MAIN, ONE, OTHER))


def test_exit_reports_are_read_back(workdir: WorkDir) -> None:
    def ended() -> list[str]:
        return [found.run for found in read_exits(workdir, ROSTER, [ONE, OTHER])]

    assert ended() == []
    write_exit(workdir, ONE, "it succeeded", NodeExit(0))
    assert ended() == ["x"]
    write_exit(workdir, OTHER, "it failed", NodeExit(None))
    assert ended() == ["x", "y"]
    (failed,) = read_failures(workdir, ROSTER, [ONE, OTHER])
    assert str(failed) == "node-2 (10.0.0.3): it failed"


def _check(monitor: Monitor, workdir: WorkDir, start: int, alive: Member) -> str | None:
    """The failure that is found within a minute in which only `alive` sends heartbeats."""
    for second in range(start, start + 60):
        workdir.write(alive.heartbeat_file, {"cluster": "ours", "number": second})
        if found := monitor.check(float(second)):
            return str(found)
    return None


def test_a_member_without_heartbeats_is_lost(workdir: WorkDir) -> None:
    monitor = Monitor(workdir, ROSTER, [ONE, OTHER])
    found = _check(monitor, workdir, 0, alive=ONE)
    assert found == "node-2 (10.0.0.3) stopped sending heartbeats"


def test_a_member_that_succeeded_needs_no_heartbeats(workdir: WorkDir) -> None:
    monitor = Monitor(workdir, ROSTER, [ONE, OTHER])
    write_exit(workdir, OTHER, "it succeeded", NodeExit(0))
    assert _check(monitor, workdir, 0, alive=ONE) is None
    assert "node-1" in str(_check(monitor, workdir, 60, alive=OTHER))


def test_a_reported_failure_is_found_at_once(workdir: WorkDir) -> None:
    monitor = Monitor(workdir, ROSTER, [ONE, OTHER])
    write_exit(workdir, OTHER, "exit code 9", NodeExit(9))
    assert str(monitor.check(0.0)) == "node-2 (10.0.0.3): exit code 9"


def test_members_are_unconfirmed_until_they_answer_or_are_lost(workdir: WorkDir) -> None:
    monitor = Monitor(workdir, ROSTER, [ONE, OTHER])
    workdir.write(OTHER.heartbeat_file, {"cluster": "ours", "number": 1})
    for second in range(32):
        heartbeat = {"cluster": "ours", "number": second, "answers": True}
        workdir.write(ONE.heartbeat_file, heartbeat)
        assert monitor.unconfirmed(float(second)) == ([OTHER] if second < 31 else [])
    assert [str(one) for one in monitor.failures] == [
        "node-2 (10.0.0.3) stopped sending heartbeats"
    ]
