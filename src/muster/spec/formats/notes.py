"""Notes and losses: what users should know about a file that is run or converted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Notes:
    """Collects notes. The same note about several groups becomes one line."""

    def __init__(self) -> None:
        self._about: dict[tuple[str, str], list[str]] = {}

    def add(self, what: str, why: str, group: str = "") -> None:
        """Add the note `what` (a field, a file) `why`, about one group or the whole job."""
        groups = self._about.setdefault((what, why), [])
        if group and group not in groups:
            groups.append(group)

    def drop(self, reason: str) -> None:
        """Drop the notes whose `why` ends with a reason."""
        self._about = {
            (what, why): groups
            for (what, why), groups in self._about.items()
            if not why.endswith(reason)
        }

    def lines(self, all_groups: Iterable[str] = ()) -> tuple[str, ...]:
        """One line for each note, which names its groups unless they are all groups."""
        every = set(all_groups)
        made = []
        for (what, why), groups in self._about.items():
            where = f" ({', '.join(groups)})" if groups and set(groups) != every else ""
            made.append(f"{what}{where} {why}" if what else why)
        return tuple(made)


class Loss(NamedTuple):
    """A field of a spec that another format cannot express."""

    #: The field's path in the spec.
    path: str
    #: What the written file has instead.
    why: str
    #: Whether what was written cannot be used before that is put right.
    is_decisive: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
