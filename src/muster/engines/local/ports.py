"""Ports for the run's own services, on a network that others use too."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from muster.errors import EngineError
from muster.plan.model import PortPlan

#: Below every system's ephemeral range, so that no outgoing connection takes one by chance.
_RANGE = range(20000, 32000)


class Ports:
    """Ports held for a run: bound, not listening, until the run ends.

    A program that sets SO_REUSEADDR (every server does) can listen on a port that is held this
    way, while another run that looks for a free one finds it taken.
    """

    def __init__(self, plans: Sequence[PortPlan], *, isolated: bool) -> None:
        self._held: list[socket.socket] = []
        self.numbers: dict[str, int] = {}
        for plan in plans:
            own = plan.fixed or isolated
            self.numbers[plan.name] = plan.number if own else self._find()

    def _find(self) -> int:
        for number in random.sample(_RANGE, 200):
            held = hold(number)
            if held is not None:
                self._held.append(held)
                return number
        raise EngineError("no free port between 20000 and 32000 on this machine")

    def close(self) -> None:
        for held in self._held:
            held.close()


def hold(number: int) -> socket.socket | None:
    """A socket that holds the port on every address; None if somebody has it on any."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind(("", number))
    except OSError:
        held.close()
        return None
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
