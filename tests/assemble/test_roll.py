"""Who counts as there, of those that wait."""

from __future__ import annotations

from muster.assemble.members import Member
from muster.assemble.roll import Roll


def node(name: str) -> Member:
    return Member(name, "WORKER", "10.0.0.2", name)


def call(roll: Roll, **numbers: int | None) -> None:
    """number: what that node has counted to; None if its file is gone."""
    roll.call({name: None if n is None else (node(name), n) for name, n in numbers.items()})


def names(members: list[Member]) -> str:
    return "".join(sorted(member.run for member in members))


def test_who_comes_alone_or_with_all_others_counts_at_once() -> None:
    roll = Roll()
    assert names(roll.living) == ""
    call(roll, a=0)
    assert names(roll.living) == "a"
    roll = Roll()
    call(roll, a=7, b=3)
    assert names(roll.living) == "ab"


def test_who_was_there_before_has_to_count_on() -> None:
    roll = Roll()
    call(roll, a=0)
    call(roll, a=0, b=0)
    assert names(roll.living) == "b"
    call(roll, a=0, b=0)
    assert names(roll.living) == "b"
    call(roll, a=1, b=0)
    assert names(roll.living) == "ab"
    call(roll, a=1, b=0)  # for the rest nobody has to do anything at every look
    assert names(roll.living) == "ab"


def test_one_that_was_killed_does_not_count_when_another_comes_in_its_place() -> None:
    roll = Roll()
    call(roll, dead=5)
    for number in range(10):
        call(roll, dead=5, new=number)
        assert names(roll.living) == "new"
    for number in range(10, 20):
        call(roll, dead=5, new=number, other=number)
    assert names(roll.living) == "newother"
    assert names(roll.come) == "deadnewother"
    for number in range(20, 100):
        call(roll, dead=5, new=number, other=number)
    assert names(roll.come) == "newother"


def test_a_file_that_is_gone_or_could_not_be_read() -> None:
    roll = Roll()
    call(roll, a=0, b=0)
    call(roll, b=None)
    assert (names(roll.living), roll.files) == ("a", ["a"])
