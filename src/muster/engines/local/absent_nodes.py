"""The nodes that were removed from a run, for which the checks of the others do not wait."""

from __future__ import annotations

from collections.abc import Iterable

from muster.frameworks.base import RoleSetup
from muster.plan.model import RunPlan


class AbsentNodes:
    """The ranks that have no node for now. An agent gets those that its node's checks wait for.

    That of an array gets none: the replica is a cluster of its own, which is removed as a whole,
    and its checks name the ranks in that cluster. Of 100,000 replicas, all but a few may be left
    out.
    """

    def __init__(self, plan: RunPlan) -> None:
        #: By group, the ranks that the checks of its nodes wait for; only of groups with any.
        self._awaited = {
            group.name: ranks
            for group in plan.groups
            if not group.is_array and (ranks := _awaited_ranks(group.role))
        }
        self._ranks: set[int] = set()

    def add(self, ranks: Iterable[int]) -> dict[str, list[int]]:
        """The nodes of these ranks were removed. Returns, by group, those of them that the checks
        of its nodes wait for, in order; only groups with any."""
        if not self._awaited:
            return {}
        removed = set(ranks)
        self._ranks |= removed
        awaited = {group: sorted(every & removed) for group, every in self._awaited.items()}
        return {group: found for group, found in awaited.items() if found}

    def discard(self, ranks: Iterable[int]) -> None:
        """Nodes of these ranks start."""
        self._ranks.difference_update(ranks)

    def awaited_by(self, group: str) -> list[int]:
        """The ranks without a node that the checks of a group's nodes would wait for, in order."""
        awaited = self._awaited.get(group)
        return sorted(awaited & self._ranks) if awaited and self._ranks else []


def _awaited_ranks(role: RoleSetup) -> frozenset[int]:
    """The ranks of the nodes that the checks of a role wait for."""
    checks = [check for service in role.services for check in (service.after, service.ready)]
    return frozenset(
        rank for check in (*checks, role.gather) for rank, _ in getattr(check, "expected", ())
    )
