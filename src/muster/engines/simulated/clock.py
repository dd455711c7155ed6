"""What a controller takes for the time."""

from __future__ import annotations

from muster.engines.simulated.agenda import Agenda


class VirtualClock:
    """See `control.clock.Clock`: virtual time, as a wall clock that is `ahead` of it shows it.

    no_earlier: what a predecessor has seen already; as in `control.clock.SteadyClock`.
    """

    def __init__(self, agenda: Agenda, ahead: float = 0.0, no_earlier: float = 0.0) -> None:
        self._agenda = agenda
        self._ahead = max(ahead, no_earlier - agenda.now)

    def now(self) -> float:
        return self._agenda.now + self._ahead
