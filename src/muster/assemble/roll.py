"""The roll: who waits to be taken in, as the main node sees it. Pure.

Who is killed while it waits leaves its file, and may come again under another name. So those who
wait count, and write their file again all the time.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.assemble.members import Member

#: Who has not counted for so many looks is not told to people as one that has come.
_SILENT = 50


class _Seen(Struct):
    """number: what it has counted to. came, moved: at which look it was first seen, and seen to
    count last."""

    member: Member
    number: int
    came: int
    moved: int


class Roll:
    """Kept from look to look."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._look = 0

    @property
    def files(self) -> list[str]:
        """Of those that were there the last time: a listing may lack them now."""
        return [*self._seen]

    def call(self, found: Mapping[str, tuple[Member, int] | None]) -> None:
        """One look. found: who says what in each file, and has counted to what; None: nobody does.
        Of a file that could not be read nothing new is known."""
        self._look += 1
        for file, said in found.items():
            seen = self._seen.get(file)
            if said is None:
                self._seen.pop(file, None)
            elif seen is None:
                self._seen[file] = _Seen(*said, came=self._look, moved=self._look)
            elif said[1] != seen.number:
                seen.number, seen.moved = said[1], self._look

    @property
    def come(self) -> list[Member]:
        """Those that may well live, for people."""
        return [s.member for s in self._seen.values() if self._look - s.moved < _SILENT]

    @property
    def living(self) -> list[Member]:
        """The newest, and those that have counted since it came: it may have come in the place of
        one that is dead. Who comes alone, or with all others, need not be waited for."""
        newest = max((s.came for s in self._seen.values()), default=0)
        return [s.member for s in self._seen.values() if s.moved >= newest]
