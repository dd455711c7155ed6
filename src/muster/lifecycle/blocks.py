"""Lists whose copies share what neither has changed.

Each step of a run makes a new status, and changes few of its nodes. Copying a block list takes time
in proportion to its blocks, and changing an item copies one block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from operator import is_not
from typing import Generic, TypeVar, overload

T = TypeVar("T")

#: Items of a block, as a power of two: index >> SHIFT is the number of its block.
SHIFT = 8
_SIZE = 1 << SHIFT
_MASK = _SIZE - 1


class BlockList(Sequence[T], Generic[T]):
    """A list of fixed length."""

    __slots__ = ("_blocks", "_length", "_own")

    def __init__(self, items: Iterable[T]) -> None:
        all_items = list(items)
        self._length = len(all_items)
        self._blocks = [all_items[n : n + _SIZE] for n in range(0, len(all_items), _SIZE)]
        self._own = set(range(len(self._blocks)))

    @classmethod
    def of(cls, items: Sequence[T]) -> BlockList[T]:
        """A copy that may be changed."""
        return items.copy() if isinstance(items, BlockList) else cls(items)

    def copy(self) -> BlockList[T]:
        """A copy. Both may be changed, and copy the blocks that they change."""
        made: BlockList[T] = BlockList.__new__(BlockList)
        made._length = self._length
        made._blocks = self._blocks.copy()
        made._own = set()
        self._own = set()
        return made

    def __setitem__(self, index: int, item: T) -> None:
        self.fill((index,), item)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(self._length))]
        if index < 0:
            index += self._length
        return self._blocks[index >> SHIFT][index & _MASK]

    def at(self, indexes: Iterable[int]) -> list[T]:
        """The items at these indexes, none of which is negative."""
        blocks = self._blocks
        return [blocks[index >> SHIFT][index & _MASK] for index in indexes]

    def fill(self, indexes: Iterable[int], item: T) -> None:
        """Set the same item at each of these indexes, none of which is negative."""
        blocks, own = self._blocks, self._own
        for index in indexes:
            number = index >> SHIFT
            if number not in own:
                blocks[number] = blocks[number].copy()
                own.add(number)
            blocks[number][index & _MASK] = item

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._blocks)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BlockList):
            return self._blocks == other._blocks
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"BlockList({list(self)!r})"

    def changes_from(self, other: Sequence[T]) -> dict[tuple[T, T], list[int]]:
        """Where this list has another object than `other`, a list of the same length: the indexes,
        in ascending order, by the other's item and its own. Blocks that both share are not
        compared."""
        found: defaultdict[tuple[T, T], list[int]] = defaultdict(list)
        before = other if isinstance(other, BlockList) else BlockList(other)
        for number, (mine, theirs) in enumerate(zip(self._blocks, before._blocks, strict=True)):
            if mine is not theirs:
                pairs = enumerate(zip(theirs, mine, strict=True), number << SHIFT)
                for index, pair in compress(pairs, map(is_not, theirs, mine)):
                    found[pair].append(index)
        return found
