"""Rules for what comes first: `depends_on`. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from muster.errors import Problem
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.wording import suggestion

#: Of a circle that are written out.
_MOST_NAMES = 8


def order_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """What cannot be in the order of groups."""
    ordered = [group.name for group in spec.node_groups if group.depends_on]
    if ordered and spec.startup == "in_order":
        text = f"in_order stands beside depends_on of group {ordered[0]}"
        yield Problem("startup", text, "keep the one you mean")
    known = [group.name for group in spec.node_groups]
    for number, group in enumerate(spec.node_groups):
        yield from _dependencies(f"node_groups[{number}].depends_on", group, known)
    needs = {g.name: dict.fromkeys(d.group for d in g.depends_on) for g in spec.node_groups}
    for cycle in cycles(needs):
        path = f"node_groups[{known.index(cycle[0])}].depends_on"
        shown = [*cycle[:_MOST_NAMES], *(["..."] if len(cycle) > _MOST_NAMES else [])]
        way = " -> ".join([*shown, cycle[0]])
        yield Problem(path, f"goes round in a circle: {way}", "one of them has to start first")


def _dependencies(path: str, group: NodeGroup, known: list[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, other in enumerate(group.depends_on):
        place = f"{path}[{number}].group"
        if other.group == group.name:
            yield Problem(place, f"{group.name} cannot wait for itself", "remove it")
        elif other.group not in known:
            rest = [name for name in known if name != group.name]
            hint = suggestion(other.group, rest) if rest else ""
            yield Problem(place, f"no group named {other.group!r}", hint)
        elif other.group in seen:
            yield Problem(place, f"{other.group} is listed twice", "keep the one you mean")
        seen.add(other.group)


def cycles(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Circles in what needs what, none sharing a name with another; each from its first name on
    in the order of `needs`. What needs itself, or something that is not there, is left aside."""
    left = {name: [n for n in others if n != name] for name, others in needs.items()}
    places = {name: place for place, name in enumerate(needs)}
    found = []
    while left := _stuck(left):
        cycle = _circle(left)
        first = cycle.index(min(cycle, key=places.__getitem__))
        found.append(cycle[first:] + cycle[:first])
        left = {name: others for name, others in left.items() if name not in cycle}
    return sorted(found, key=lambda cycle: places[cycle[0]])


def _stuck(needs: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """What can never start, and what of that it waits for."""
    waits = {name: sum(other in needs for other in others) for name, others in needs.items()}
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for name, others in needs.items():
        for other in others:
            waiting[other].append(name)
    started = [name for name, count in waits.items() if not count]
    for name in started:  # grows as more can start
        for other in waiting[name]:
            waits[other] -= 1
            if not waits[other]:
                started.append(other)
    return {
        name: [other for other in others if waits.get(other)]
        for name, others in needs.items()
        if waits[name]
    }


def _circle(stuck: Mapping[str, list[str]]) -> list[str]:
    """One circle among what is stuck: whoever goes from one to the next comes round."""
    name = next(iter(stuck))
    way: dict[str, None] = {}
    while name not in way:
        way[name] = None
        name = stuck[name][0]
    steps = list(way)
    return steps[steps.index(name) :]
