"""Lists that share their unchanged blocks, compared with plain lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from muster.lifecycle.blocks import SHIFT, BlockList

SIZE = 1 << SHIFT
LENGTHS = (0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 2 * SIZE + 3)


class Lists(RuleBasedStateMachine):
    """A block list and its earlier copies, each beside a plain list of the same items."""

    @initialize(length=st.sampled_from(LENGTHS))
    def start(self, length: int) -> None:
        self.plain = [object() for _ in range(length)]
        self.list: BlockList[object] = BlockList(self.plain)
        self.former: list[tuple[BlockList[object], list[object]]] = []

    @rule()
    def copy(self) -> None:
        self.former.append((self.list, self.plain.copy()))
        self.list = self.list.copy()

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        if self.plain:
            index = data.draw(st.integers(0, len(self.plain) - 1))
            self.plain[index] = self.list[index] = object()

    @invariant()
    def copies_do_not_change(self) -> None:
        for former, plain in self.former:
            assert list(former) == plain

    @invariant()
    def it_is_like_a_plain_list(self) -> None:
        assert len(self.list) == len(self.plain)
        assert list(self.list) == self.plain
        assert self.list == BlockList(self.plain) == self.plain
        if self.plain:
            assert self.list[-1] is self.plain[-1]

    @invariant()
    def changes_are_found(self) -> None:
        for former, plain in self.former:
            changed = [n for n, item in enumerate(self.plain) if item is not plain[n]]
            for other in (former, plain):
                found = self.list.changes_from(other).values()
                assert sorted(index for indexes in found for index in indexes) == changed


TestLists = Lists.TestCase


@given(st.sampled_from(LENGTHS), st.slices(2 * SIZE + 3))
def test_slices(length: int, part: slice) -> None:
    assert BlockList(range(length))[part] == list(range(length))[part]


@pytest.mark.parametrize("length", LENGTHS)
def test_indexes_outside_are_refused(length: int) -> None:
    made = BlockList(range(length))
    with pytest.raises(IndexError):
        made[length]


def test_a_block_list_stays_one_and_other_sequences_become_one() -> None:
    made = BlockList([1, 2])
    assert BlockList.of(made) == BlockList.of((1, 2)) == [1, 2]
    assert BlockList.of(made) is not made
    assert made not in ([1], 7)
    assert repr(made) == "BlockList([1, 2])"


ITEMS = st.lists(st.integers(), min_size=1, max_size=600)


@given(ITEMS, st.data())
def test_a_copy_differs_where_it_was_filled(items: list[int], data: st.DataObject) -> None:
    ranks = st.sets(st.integers(0, len(items) - 1), max_size=20)
    first, second = data.draw(ranks), data.draw(ranks)
    original = BlockList(items)
    copy = original.copy()
    copy.fill(first, 1_000)
    copy.fill(sorted(second), 2_000)
    expected = [2_000 if n in second else 1_000 if n in first else x for n, x in enumerate(items)]
    assert list(copy) == copy.at(range(len(items))) == expected
    assert list(original) == items
    changes = copy.changes_from(original)
    assert {index for indexes in changes.values() for index in indexes} == first | second
    for (old, new), indexes in changes.items():
        assert indexes == sorted(indexes)
        assert {items[index] for index in indexes} == {old}
        assert {expected[index] for index in indexes} == {new}


def test_a_list_without_changes_has_none() -> None:
    items = BlockList(range(1_000))
    assert items.copy().changes_from(items) == {}


def test_a_copy_and_its_original_are_independent() -> None:
    original = BlockList([0] * 600)
    copied = original.copy()
    original[0], copied[599] = 1, 2
    assert (original[0], copied[0]) == (1, 0)
    assert (original[599], copied[599]) == (0, 2)
