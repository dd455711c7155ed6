"""When what runs beside the programs of nodes (`hosts.Companions`) starts and ends.

A node that has joined does not start its program before its companions are up, and its end is not
reported before they have ended. A session that attaches to a node tells them again how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from muster.engines.remote.hosts import CompanionStart
from muster.engines.remote.node import RemoteNode, Stage
from muster.engines.remote.node_contact import NodeContact
from muster.node.messages import ExitReport


class NodeCompanions:
    """Those of a run. contacts: by slot. start: makes what they are told of a node that starts."""

    def __init__(
        self,
        contacts: Mapping[int, NodeContact],
        start: Callable[[NodeContact], CompanionStart],
    ) -> None:
        self._contacts, self._start = contacts, start
        self._started: dict[int, int] = {}  # slot -> the number of the incarnation that was told
        self._finished: dict[int, int] = {}

    def step(self, slots: Iterable[int]) -> None:
        """Something is new of the nodes in these slots."""
        for slot in slots:
            owner = self._contacts.get(slot)
            if owner is None or owner.host.companions is None or not owner.node.running:
                continue
            node, companions = owner.node, owner.host.companions
            has_joined = node.stage >= Stage.JOINED or node.program_end is not None
            if has_joined and self._started.get(slot) != node.number:
                self._started[slot] = node.number
                companions.start(self._start(owner))
            if node.program_end is not None and self._finished.get(slot) != node.number:
                self._finished[slot] = node.number
                report = node.program_end.report
                companions.finish(succeeded=report.exit_code == 0, keep=node.program_end.kept)

    def stop(self, slots: Iterable[int | None], *, kill: bool) -> None:
        """The nodes in these slots are to end."""
        for slot in slots:
            owner = None if slot is None else self._contacts.get(slot)
            if owner is not None and owner.host.companions is not None:
                companions = owner.host.companions
                companions.kill() if kill else companions.stop()

    def gone(self, slot: int) -> None:
        """The host of a slot is gone: the next one has other companions."""
        self._started.pop(slot, None)
        self._finished.pop(slot, None)


def started(node: RemoteNode, number: int) -> None:
    """See `HostsOwner.companions_started`."""
    if node.number == number:
        node.companions_started = True


def failed(node: RemoteNode, number: int, report: ExitReport) -> None:
    """See `HostsOwner.companions_failed`."""
    if node.number == number and node.running:
        node.fail(report)


def ended(node: RemoteNode, number: int) -> None:
    """See `HostsOwner.companions_ended`."""
    if node.number == number and node.running:
        node.end_with_companions()
