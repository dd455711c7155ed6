"""Which ports the servers of nodes reserve on their hosts, and their numbers. Pure.

A port is free where it is used, or not at all: so the host of the node that listens on it draws
its number. Each server is asked once a conversation, and keeps what it has reserved.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.frameworks.base import Port
from muster.node.messages import PortRequest, PortsReserved, ReservePorts


class RemotePorts:
    """The ports of the services of a cluster. Its nodes are named by their ranks in it."""

    def __init__(self, ports: Iterable[Port], nodes: int) -> None:
        #: The numbers as for `NodeStart.ports`; the usual ones of nodes that have no host yet.
        self.numbers: dict[str, int] = {}
        #: Rank -> why its host cannot reserve what it was asked for.
        self.problems: dict[int, str] = {}
        self._of_rank: dict[int, dict[str, Port]] = {}  # by name as in `numbers`
        self._known: set[str] = set()
        for port in ports:
            for rank in range(nodes) if port.each else (0,):
                name = f"{port.name}.{rank}" if port.each else port.name
                self.numbers[name] = port.number
                if not port.can_be_kept(shared=True):
                    self._of_rank.setdefault(rank, {})[name] = port

    def request(self, rank: int) -> ReservePorts | None:
        """What to ask the server of a node for, at the start of each conversation; None if its
        node needs no ports."""
        ports = self._of_rank.get(rank)
        if ports is None:
            return None
        self.problems.pop(rank, None)
        return ReservePorts([self._request(name, port) for name, port in ports.items()])

    def _request(self, name: str, port: Port) -> PortRequest:
        known = name in self._known  # other nodes use the number
        preferred = known or port.preferred or port.fixed
        number = self.numbers[name] if known else port.number
        return PortRequest(name, number, port.count, preferred=preferred, held=port.held)

    def reserved(self, rank: int, answer: PortsReserved) -> None:
        """A server has reserved ports."""
        for name in self._of_rank.get(rank, {}):
            if name in answer.numbers:
                self.numbers[name] = answer.numbers[name]
                self._known.add(name)
        if answer.problem:
            self.problems[rank] = answer.problem

    def awaited(self, rank: int) -> bool:
        """Whether the numbers of a node are not known yet."""
        return not self._known.issuperset(self._of_rank.get(rank, ()))
