"""Who has ended, and how the others know."""

from __future__ import annotations

import pytest

from muster.assemble.ends import (
    Failed,
    Watch,
    failed_members,
    first_cause,
    say_ended,
    still_there,
)
from muster.assemble.members import Assembly, Member
from muster.assemble.running import NodeEnd
from muster.assemble.workdir import WorkDir

MAIN = Member("m", "MAIN", "10.0.0.1", "a")
ONE = Member("x", "WORKER", "10.0.0.2", "b")
OTHER = Member("y", "WORKER", "10.0.0.3", "c")
ASSEMBLY = Assembly("ours", "t", (MAIN, ONE, OTHER))


def test_what_they_say_of_their_ends(workdir: WorkDir) -> None:
    assert still_there(workdir, [ONE, OTHER]) == [ONE, OTHER]
    say_ended(workdir, ONE, "well", NodeEnd(0))
    assert still_there(workdir, [ONE, OTHER]) == [OTHER]
    say_ended(workdir, OTHER, "badly", NodeEnd(None))
    assert still_there(workdir, [ONE, OTHER]) == []
    (failed,) = failed_members(workdir, ASSEMBLY, [ONE, OTHER])
    assert str(failed) == "node-2 (10.0.0.3): badly"


def _lost(watch: Watch, workdir: WorkDir, since: int, living: Member) -> str | None:
    """What is found in a minute in which one of them lives."""
    for second in range(since, since + 60):
        workdir.write(living.beat_file, {"cluster": "ours", "number": second})
        if found := watch.lost(float(second)):
            return str(found)
    return None


def test_one_that_is_gone_without_a_word_is_missed(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    found = _lost(watch, workdir, 0, living=ONE)
    assert found == "node-2 (10.0.0.3) is gone without a word"


def test_one_whose_work_is_done_is_not_missed(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    say_ended(workdir, OTHER, "well", NodeEnd(0))
    assert _lost(watch, workdir, 0, living=ONE) is None
    assert "node-1" in str(_lost(watch, workdir, 60, living=OTHER))


def test_one_that_says_that_it_failed_is_noticed_at_once(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    say_ended(workdir, OTHER, "exit code 9", NodeEnd(9))
    assert str(watch.lost(0.0)) == "node-2 (10.0.0.3): exit code 9"


def test_who_answers_lives_and_who_does_not_is_waited_for(workdir: WorkDir) -> None:
    watch = Watch(workdir, ASSEMBLY, [ONE, OTHER])
    workdir.write(OTHER.beat_file, {"cluster": "ours", "number": 1})
    for second in range(32):
        beat = {"cluster": "ours", "number": second, "answers": True}
        workdir.write(ONE.beat_file, beat)
        assert watch.silent(float(second)) == ([OTHER] if second < 31 else [])
    assert [str(one) for one in watch.failed] == ["node-2 (10.0.0.3) is gone without a word"]


@pytest.mark.parametrize(
    ("failures", "first"),
    [
        ([Failed("a", "node-0", "exit code 1", at=3), Failed("b", "node-1", "x", at=2)], "b"),
        # who was killed could not say so, and is noticed last
        ([Failed("a", "node-0", "exit code 1", at=3), Failed("b", "node-1")], "b"),
        # who was told to end, or wrote to a peer that was gone, follows another
        (
            [
                Failed("a", "node-0", "signal 15", signal=15, at=1),
                Failed("b", "node-1", "signal 13", signal=13, at=2),
                Failed("c", "node-2", "exit code 1", at=3),
            ],
            "c",
        ),
        (
            [Failed("a", "node-0", "signal 9", signal=9, at=1), Failed("b", "node-1", "x", at=2)],
            "a",
        ),
    ],
)
def test_the_first_cause(failures: list[Failed], first: str) -> None:
    assert first_cause(failures).run == first
