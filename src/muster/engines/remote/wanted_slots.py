"""The slots that a session wants hosts for, until they are asked for together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class WantedSlots:
    """Slots that are to be in one allocation, and parts that are to be in one each."""

    def __init__(self) -> None:
        self._together: list[int] = []
        self._parts: list[list[int]] = []

    def __iter__(self) -> Iterator[int]:
        yield from self._together
        for part in self._parts:
            yield from part

    def add(self, slots: Sequence[int]) -> None:
        """More slots, together with those that were added before."""
        self._together += slots

    def add_parts(self, parts: Sequence[Sequence[int]]) -> None:
        """Slots that are in an allocation of their own, for each part."""
        self._parts += map(list, parts)

    def drop(self, slot: int) -> None:
        """A slot needs no host any more."""
        self._together = [one for one in self._together if one != slot]
        self._parts = [[one for one in part if one != slot] for part in self._parts]

    def take(self) -> tuple[list[int], list[list[int]]]:
        """Those that are to be in one allocation, which may be none, and the parts. None are wanted
        after this."""
        together, self._together = self._together, []
        parts, self._parts = self._parts, []
        return together, parts
