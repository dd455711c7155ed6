"""Ports for the run's own services, on a network that others use too."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from muster.errors import EngineError
from muster.frameworks.base import Port

#: Below every system's ephemeral range, so that no outgoing connection takes one by chance.
_RANGE = range(20000, 32000)


class Ports:
    """Ports held for a run: bound, not listening, until the run ends.

    A program that sets SO_REUSEADDR (every server does) can listen on a port that is held this
    way, while another run that looks for a free one finds it taken.

    own: whether each node has all ports to itself. numbers: by name; of a port that each of the
    nodes has, by `NAME.RANK`. Of several in a row, the first.
    """

    def __init__(self, wanted: Sequence[Port], nodes: int, *, own: bool) -> None:
        self._held: list[socket.socket] = []
        self.numbers: dict[str, int] = {}
        passing: list[socket.socket] = []
        for port in wanted:
            names = [f"{port.name}.{n}" for n in range(nodes)] if port.each else [port.name]
            held = self._held if port.held else passing
            for name in names:
                if port.can_be_kept(shared=not own):
                    self.numbers[name] = port.number
                else:
                    self.numbers[name], found = _row_for(port)
                    held += found
        for one in passing:  # held so far, so that no two nodes have the same
            one.close()

    def close(self) -> None:
        for held in self._held:
            held.close()


def _row_for(port: Port) -> tuple[int, list[socket.socket]]:
    wanted = port.preferred or port.fixed
    usual = hold_row(port.number, port.count) if wanted else None
    return find_row(port.count) if usual is None else (port.number, usual)


def find_row(count: int) -> tuple[int, list[socket.socket]]:
    """The first of so many free ports in a row, and what holds them. Raises EngineError."""
    for first in random.sample(_RANGE[: len(_RANGE) - count + 1], 200):
        held = hold_row(first, count)
        if held is not None:
            return first, held
    what = "no free port" if count == 1 else f"no {count} free ports in a row"
    raise EngineError(f"{what} between 20000 and 32000 on this machine")


def hold_row(first: int, count: int) -> list[socket.socket] | None:
    """What holds so many ports in a row; None if somebody has one of them."""
    held: list[socket.socket] = []
    for number in range(first, first + count):
        one = hold(number)
        if one is None:
            for other in held:
                other.close()
            return None
        held.append(one)
    return held


def hold(number: int, address: str = "") -> socket.socket | None:
    """A socket that holds the port on that address (empty: on every one); None if somebody has
    it there."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.bind((address, number))
    except OSError:
        held.close()
        return None
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held
