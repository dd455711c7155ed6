"""What somebody should know who runs or converts a manifest: one line each, however often."""

from __future__ import annotations

from collections.abc import Iterable


class Notes:
    """Collects sentences; the same about several groups is one sentence."""

    def __init__(self) -> None:
        self._about: dict[tuple[str, str], list[str]] = {}

    def add(self, what: str, why: str, group: str = "") -> None:
        """`what` (a field, a file) is not as somebody may expect, because `why`."""
        groups = self._about.setdefault((what, why), [])
        if group and group not in groups:
            groups.append(group)

    def lines(self, all_groups: Iterable[str] = ()) -> tuple[str, ...]:
        """Sentences. Groups are named where it is not about all of them."""
        everybody = set(all_groups)
        made = []
        for (what, why), groups in self._about.items():
            where = f" ({', '.join(groups)})" if groups and set(groups) != everybody else ""
            made.append(f"{what}{where} {why}" if what else why)
        return tuple(made)
