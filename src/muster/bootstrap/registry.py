"""The registry: which nodes wait to join, as the main node sees them. Pure.

A node that is killed while it waits leaves its registration file behind, and may be restarted under
another name. So waiting nodes rewrite their file regularly, with a counter.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from muster.bootstrap.roster import Member

#: A node whose counter has not changed for this many polls is no longer listed for people.
_MAX_SILENT_POLLS = 50


class _Entry(Struct):
    """One registered node."""

    member: Member
    #: The counter in its file.
    count: int
    #: The poll at which its file was first seen.
    registered: int
    #: The poll at which its counter last changed.
    updated: int


class Registry:
    """The registered nodes, kept from poll to poll."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._poll = 0

    @property
    def files(self) -> list[str]:
        """The files of registered nodes. Poll these too: an object store's listing may omit new
        files."""
        return [*self._entries]

    def update(self, found: Mapping[str, tuple[Member, int] | None]) -> None:
        """Update the registry with the files found by one poll.

        found: the node and its counter by file; None for a file that does not exist. A file that
        could not be read is left out, and its entry stays as it is.
        """
        self._poll += 1
        for file, registration in found.items():
            entry = self._entries.get(file)
            if registration is None:
                self._entries.pop(file, None)
            elif entry is None:
                self._entries[file] = _Entry(
                    *registration, registered=self._poll, updated=self._poll
                )
            elif registration[1] != entry.count:
                entry.count, entry.updated = registration[1], self._poll

    @property
    def recently_updated(self) -> list[Member]:
        """Nodes that have updated their file in the last polls, for messages."""
        return [
            entry.member
            for entry in self._entries.values()
            if self._poll - entry.updated < _MAX_SILENT_POLLS
        ]

    @property
    def confirmed_alive(self) -> list[Member]:
        """Nodes known to be alive: the newest, and those that have updated their file since.

        A new node may replace one that was killed, so when it registers, the others count again
        only after their next update.
        """
        newest = max((entry.registered for entry in self._entries.values()), default=0)
        return [entry.member for entry in self._entries.values() if entry.updated >= newest]
