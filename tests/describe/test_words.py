"""Numbers and lists in sentences."""

from __future__ import annotations

from muster.describe.words import named, plural


def test_only_one_is_singular() -> None:
    assert [plural(n, "node") for n in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]


def test_a_long_list_ends_with_the_number_of_the_others() -> None:
    assert named(["a", "b"], 2) == "a, b"
    assert named(["a", "b", "c"], 2) == "a, b and 1 more"
    assert named([], 2) == ""
