"""Which of the registered nodes are alive."""

from __future__ import annotations

from muster.bootstrap.registry import Registry
from muster.bootstrap.roster import Member


def node(name: str) -> Member:
    return Member(name, "WORKER", "10.0.0.2", name)


def update(registry: Registry, **counts: int | None) -> None:
    """`counts` has the write counter of each node; None if its file does not exist."""
    registry.update({name: None if n is None else (node(name), n) for name, n in counts.items()})


def names(members: list[Member]) -> str:
    return "".join(sorted(member.run for member in members))


def test_nodes_that_register_in_the_same_poll_are_alive() -> None:
    registry = Registry()
    assert names(registry.confirmed_alive) == ""
    update(registry, a=0)
    assert names(registry.confirmed_alive) == "a"
    registry = Registry()
    update(registry, a=7, b=3)
    assert names(registry.confirmed_alive) == "ab"


def test_earlier_nodes_must_count_again_after_another_registers() -> None:
    registry = Registry()
    update(registry, a=0)
    update(registry, a=0, b=0)
    assert names(registry.confirmed_alive) == "b"
    update(registry, a=0, b=0)
    assert names(registry.confirmed_alive) == "b"
    update(registry, a=1, b=0)
    assert names(registry.confirmed_alive) == "ab"
    update(registry, a=1, b=0)  # no node has to count at every poll
    assert names(registry.confirmed_alive) == "ab"


def test_a_killed_node_is_not_alive_after_another_registers() -> None:
    registry = Registry()
    update(registry, dead=5)
    for count in range(10):
        update(registry, dead=5, new=count)
        assert names(registry.confirmed_alive) == "new"
    for count in range(10, 20):
        update(registry, dead=5, new=count, other=count)
    assert names(registry.confirmed_alive) == "newother"
    assert names(registry.recently_updated) == "deadnewother"
    for count in range(20, 100):
        update(registry, dead=5, new=count, other=count)
    assert names(registry.recently_updated) == "newother"


def test_a_removed_file_is_forgotten_and_an_unread_one_is_not() -> None:
    registry = Registry()
    update(registry, a=0, b=0)
    update(registry, b=None)
    assert (names(registry.confirmed_alive), registry.files) == ("a", ["a"])
