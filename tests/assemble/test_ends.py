"""Who has ended, and how the others know."""

from __future__ import annotations

from muster.assemble.ends import Watch, lost_members, say_ended, still_there
from muster.assemble.members import Assembly, Member
from muster.assemble.workdir import WorkDir

MAIN = Member("m", "MAIN", "10.0.0.1", "a")
ONE = Member("x", "WORKER", "10.0.0.2", "b")
OTHER = Member("y", "WORKER", "10.0.0.3", "c")
ASSEMBLY = Assembly("ours", "t", (MAIN, ONE, OTHER))


def test_what_they_say_of_their_ends(workdir: WorkDir) -> None:
    assert still_there(workdir, [ONE, OTHER]) == [ONE, OTHER]
    say_ended(workdir, ONE, "well", 0)
    assert still_there(workdir, [ONE, OTHER]) == [OTHER]
    say_ended(workdir, OTHER, "badly", None)
    assert still_there(workdir, [ONE, OTHER]) == []
    assert lost_members(workdir, ASSEMBLY, [ONE, OTHER]) == ["node-2 (10.0.0.3): badly"]


def _lost(watch: Watch, workdir: WorkDir, since: int, living: Member) -> str | None:
    """What is found in a minute in which one of them lives."""
    for second in range(since, since + 60):
        workdir.write(living.beat_file, {"cluster": "ours", "number": second})
        if found := watch.lost(float(second)):
            return found
    return None


def test_one_that_is_gone_without_a_word_is_missed(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    found = _lost(watch, workdir, 0, living=ONE)
    assert found == "node-2 (10.0.0.3) is gone without a word"


def test_one_whose_work_is_done_is_not_missed(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    say_ended(workdir, OTHER, "well", 0)
    assert _lost(watch, workdir, 0, living=ONE) is None
    assert "node-1" in str(_lost(watch, workdir, 60, living=OTHER))


def test_one_that_could_say_no_more_than_that_it_failed_is_told_of(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    say_ended(workdir, OTHER, "exit code 9", 9)
    assert _lost(watch, workdir, 0, living=ONE) == "node-2 (10.0.0.3): exit code 9"
