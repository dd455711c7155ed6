"""Which slot each pod of a JobSet serves. Pure.

An allocation of slots is one JobSet. In it, each group of the plan that has slots there is a
replicated Job: with the Jobs and indexes of the group's replicas if these are whole, else with one
Job that has all of its slots, as for nodes that get new pods while the others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from muster.engines.kubernetes.names import group_names
from muster.plan.model import GroupPlan, RunPlan


class JobLayout(Struct, frozen=True):
    """A replicated Job."""

    #: Its name, and that of its group in the plan.
    name: str
    group: str
    #: In the order of its Jobs, and of the indexes of these.
    slots: tuple[int, ...]
    #: How many Jobs it has, and pods in each.
    jobs: int
    nodes: int

    def slot(self, job: int, index: int) -> int | None:
        """The slot of a pod; None if it has none."""
        if not (0 <= job < self.jobs and 0 <= index < self.nodes):
            return None
        return self.slots[job * self.nodes + index]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Its slots as ranges: the first, and the one after the last."""
        found: list[tuple[int, int]] = []
        for slot in self.slots:
            if found and found[-1][1] == slot:
                found[-1] = (found[-1][0], slot + 1)
            else:
                found.append((slot, slot + 1))
        return found


def layout(plan: RunPlan, slots: Iterable[int]) -> list[JobLayout]:
    """The replicated Jobs of an allocation, in the order of the plan's groups."""
    names, wanted = group_names(plan.groups), set(slots)
    found = []
    for group in plan.groups:
        own = tuple(slot for slot in plan.slots(group) if slot in wanted)
        if own:
            jobs = _whole_replicas(plan, group, own)
            nodes = group.nodes if jobs else len(own)
            found.append(JobLayout(names[group.name], group.name, own, jobs or 1, nodes))
    return found


def _whole_replicas(plan: RunPlan, group: GroupPlan, slots: Sequence[int]) -> int:
    """How many replicas these slots are; 0 if one is not whole."""
    first = plan.slots(group).start
    if len(slots) % group.nodes:
        return 0
    for start in range(0, len(slots), group.nodes):
        part = slots[start : start + group.nodes]
        if (part[0] - first) % group.nodes or part[-1] - part[0] != group.nodes - 1:
            return 0
    return len(slots) // group.nodes
