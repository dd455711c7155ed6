"""Entries of a run's event log as messages of its log. Those about the replicas of an array, of
which there may be 100,000, are left out but for some of the failures; the others are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.describe.events import in_log, sentence
from muster.describe.layout import shorten
from muster.describe.words import plural
from muster.escapes import visible_line
from muster.lifecycle.ranks import parse_ranges
from muster.lifecycle.states import RunState
from muster.secrets import hidden, names_secret

if TYPE_CHECKING:
    from muster.plan.model import Parameters

#: Failures of an array's replicas that are told of one second.
PER_SECOND = 3
#: Cells of the parameters of one that failed.
_WIDTH = 100
#: What a restart is of, if it is that of a replica.
_OF_REPLICAS = ("node-", "replica ")


class LogEntries:
    """The messages of one run, made from its entries in order."""

    def __init__(
        self,
        arrays: Callable[[], Sequence[range]],
        parameters: Callable[[], Parameters | None] = lambda: None,
    ) -> None:
        """arrays: returns the ranks of each array of the run; called if an entry is about nodes.
        parameters: returns those of an array; called if one of its replicas fails."""
        self._find = arrays
        self._find_parameters = parameters
        self._arrays: Sequence[range] | None = None
        self._second = 0
        self._logged = self._suppressed = 0

    def texts(self, time: float, kind: str, data: Mapping[str, Any]) -> Iterator[str]:
        """The messages of an entry: none, or one, after the number of those that were left out
        before. time: epoch seconds."""
        if kind in ("nodes", "restart", "failure") and self._is_of_array(kind, data):
            if kind == "failure" and self._may_log(int(time)):
                yield from self._summary()
                yield sentence(kind, hidden({**data, "parameters": self._parameters(data)}))
            return
        if kind == "run" and data.get("state") != RunState.IN_PROGRESS:
            yield from self._summary()
        if in_log(kind, data):
            yield sentence(kind, hidden(data))

    def _may_log(self, second: int) -> bool:
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        self._suppressed += self._logged > PER_SECOND
        return self._logged <= PER_SECOND

    def _parameters(self, data: Mapping[str, Any]) -> str:
        """Those of the replica of a failure: `lr=0.1 seed=3`; "" if it has none, or secret ones."""
        found, replica = self._find_parameters(), data.get("replica")
        if found is None or replica is None or found.group != data.get("group"):
            return ""
        if any(map(names_secret, found.names)):
            return ""
        values = " ".join(f"{name}={value}" for name, value in found.values(replica).items())
        return shorten(visible_line(values), _WIDTH)

    def _summary(self) -> Iterator[str]:
        if self._suppressed:
            yield f"{plural(self._suppressed, 'more failure')} of replicas"
            self._suppressed = 0

    def _is_of_array(self, kind: str, data: Mapping[str, Any]) -> bool:
        if self._arrays is None:
            self._arrays = self._find()
        if not self._arrays:
            return False
        if kind == "restart":
            return str(data.get("what", "")).startswith(_OF_REPLICAS)
        if kind == "failure":
            first = data.get("rank")
        else:
            ranges = parse_ranges(str(data.get("ranks", "")))
            first = ranges[0].start if ranges else None
        return any(first in ranks for ranks in self._arrays)
