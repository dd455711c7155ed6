"""The ports that a node of an assembled cluster listens on: the usual ones where they are free."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from muster.engines.local.ports import find_row, hold_row
from muster.frameworks.base import Port


class OwnPorts:
    """Those of one node, held until `close`, so that another node on this machine takes others.

    main: whether it is the node of rank 0. say: told of each that is not the usual one. numbers:
    by name, the first of several in a row. Raises EngineError if there are none.
    """

    def __init__(self, wanted: Iterable[Port], say: Callable[[str], None], *, main: bool) -> None:
        self.numbers: dict[str, int] = {}
        self._held: list[socket.socket] = []
        passing: list[socket.socket] = []
        for port in wanted:
            if port.each or main:
                keep = self._held if port.held else passing
                self.numbers[port.name] = _take(port, say, keep)
        for one in passing:
            one.close()

    def close(self) -> None:
        for one in self._held:
            one.close()


def _take(port: Port, say: Callable[[str], None], keep: list[socket.socket]) -> int:
    number, held = port.number, hold_row(port.number, port.count)
    if held is None and port.fixed:
        say(f"port {number} ({port.name}) is in use here, and no other will do")
        return number
    if held is None:
        number, held = find_row(port.count)
        say(f"port {port.number} ({port.name}) is in use here: {number} in its place")
    keep += held
    return number
