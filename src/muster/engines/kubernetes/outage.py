"""Whether the API server answers, from what becomes of the calls of a watcher. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from muster.engines.kubernetes.changes import Away
from muster.engines.kubernetes.refusals import CannotCall

#: Seconds without the API server after which that is reported.
_AWAY_AFTER = 3.0
#: Kinds without which runs are not known.
_NEEDED = frozenset({"Pod", "JobSet", "Job"})


class Outage:
    """That of a namespace's objects, if there is one."""

    def __init__(self) -> None:
        self._failing: dict[str, Away] = {}  # by kind
        #: As it was reported; None: they are known.
        self.reported: Away | None = None

    def failed(self, kind: str, error: CannotCall, since: float, now: float) -> Away | None:
        """Objects of a kind cannot be read. since: when the call was made, which may have taken
        long (epoch seconds). Returns what is to be reported."""
        if kind not in _NEEDED:
            return None
        first = self._failing.get(kind)
        away = Away(first.since if first is not None else since, str(error))
        self._failing[kind] = away
        is_known = self.reported is not None and self.reported.why == away.why
        if is_known or not (error.refused or now - away.since >= _AWAY_AFTER):
            return None
        self.reported = away
        return away

    def works(self, kind: str) -> Away | None:
        """Objects of a kind were read. Returns what is to be reported."""
        self._failing.pop(kind, None)
        if self.reported is None or self._failing:
            return None
        away, self.reported = self.reported, None
        return replace(away, is_back=True)
