"""Rules for groups: what they wait for, and the names of their nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from muster.errors import Problem
from muster.spec.models import ExtraContainer, JobSpec, Mount, NodeGroup
from muster.spec.placeholders import (
    IN_ENV,
    IN_HOSTNAME,
    OF_PARAMETER,
    OF_SECRET,
    as_label,
    expand_hostname,
    unknown_placeholders,
)
from muster.spec.secret_names import mount_templates
from muster.spec.values import LABEL_HINT, MAX_NODES, is_label
from muster.spec.wording import alternatives, close_to, short, suggestion

#: Maximum names of a cycle in a message.
_MAX_NAMES = 8
#: Placeholders that differ between attempts.
_OF_ATTEMPT = ("attempt", "run.restarts")


def order_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Conflicts in the order of groups."""
    ordered = [group.name for group in spec.node_groups if group.depends_on]
    if ordered and spec.startup == "in_order":
        text = f"in_order conflicts with depends_on of group {ordered[0]}"
        yield Problem("startup", text, "keep only one of them")
    known = [group.name for group in spec.node_groups]
    for number, group in enumerate(spec.node_groups):
        yield from _dependencies(f"node_groups[{number}].depends_on", group, known)
    needs = {g.name: dict.fromkeys(d.group for d in g.depends_on) for g in spec.node_groups}
    for cycle in cycles(needs):
        path = f"node_groups[{known.index(cycle[0])}].depends_on"
        shown = [*cycle[:_MAX_NAMES], *(["..."] if len(cycle) > _MAX_NAMES else [])]
        way = " -> ".join([*shown, cycle[0]])
        yield Problem(path, f"is circular: {way}", "one of them must start first")


def _dependencies(path: str, group: NodeGroup, known: list[str]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, other in enumerate(group.depends_on):
        place = f"{path}[{number}].group"
        if other.group == group.name:
            yield Problem(place, f"{group.name} cannot wait for itself", "remove it")
        elif other.group not in known:
            rest = [name for name in known if name != group.name]
            hint = suggestion(other.group, rest) if rest else ""
            yield Problem(place, f"no group named {short(other.group)}", hint)
        elif other.group in seen:
            yield Problem(place, f"{other.group} is listed twice", "keep only one of them")
        seen.add(other.group)


def cycles(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Disjoint cycles of dependencies. Each starts with its name that comes first in `needs`.
    Dependencies on itself or on unknown names are ignored."""
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
    """The names that can never start, with those of them that they wait for."""
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
    """One cycle. Every stuck name waits for a stuck name, so following them leads to a cycle."""
    name = next(iter(stuck))
    way: dict[str, None] = {}
    while name not in way:
        way[name] = None
        name = stuck[name][0]
    steps = list(way)
    return steps[steps.index(name) :]


def name_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Conflicts inside single groups."""
    for number, group in enumerate(spec.node_groups):
        path = f"node_groups[{number}]"
        for name in unknown_placeholders(group.hostname or "", IN_HOSTNAME):
            text = f"no placeholder named ${{{name}}}"
            if name in IN_ENV:
                text = f"${{{name}}} is not known when nodes get their names"
            yield Problem(f"{path}.hostname", text, suggestion(name, IN_HOSTNAME))
        known = _in_env(group)
        for variable, value in group.node_env.items():
            place = f"{path}.node_env.{variable}"
            for name in _unknown_names(value, known):
                yield _unknown(place, name, known)
            if variable in spec.env or variable in group.env:
                yield Problem(place, f"{variable} is also in env", "keep only one of them")
        for position, word in enumerate(group.node_args or ()):
            for name in _unknown_names(word, known):
                yield _unknown(f"{path}.node_args[{position}]", name, known)
        mounts = [(f"mounts[{n}]", mount) for n, mount in enumerate(spec.mounts)]
        mounts += [(f"{path}.mounts[{n}]", mount) for n, mount in enumerate(group.mounts)]
        for position, one in enumerate(group.extra_containers):
            where = f"{path}.extra_containers[{position}]"
            yield from _in_container(where, one, known)
            mounts += [(f"{where}.mounts[{n}]", mount) for n, mount in enumerate(one.mounts)]
        for place, mount in mounts:
            yield from _in_mount(place, mount, known)


def _in_container(path: str, one: ExtraContainer, known: tuple[str, ...]) -> Iterator[Problem]:
    """Placeholders of another container that are not known."""
    for variable, value in one.node_env.items():
        for name in _unknown_names(value, known):
            yield _unknown(f"{path}.node_env.{variable}", name, known)
        if variable in one.env:
            text = f"{variable} is also in env"
            yield Problem(f"{path}.node_env.{variable}", text, "keep only one of them")
    for position, word in enumerate(one.node_args or ()):
        for name in _unknown_names(word, known):
            yield _unknown(f"{path}.node_args[{position}]", name, known)


def _in_mount(path: str, mount: Mount, known: tuple[str, ...]) -> Iterator[Problem]:
    """Placeholders of a mount that are not known. A part of a source stays mounted when programs
    restart in place."""
    lasting = tuple(one for one in known if one not in _OF_ATTEMPT)
    for name in unknown_placeholders(mount.sub_path or "", lasting):
        place = f"{path}.sub_path"
        if name in known or name.startswith(OF_SECRET):
            text = f"${{{name}}} cannot be in the path of a mount"
            yield Problem(place, text, f"use {alternatives(lasting)}")
        else:
            yield _unknown(place, name, lasting)
    for place, template in mount_templates(path, mount):
        for name in _unknown_names(template, known):
            yield _unknown(place, name, known)


def _in_env(group: NodeGroup) -> tuple[str, ...]:
    """The placeholders that `node_env` and `node_args` of a group may have, besides secrets."""
    if group.array is None:
        return IN_ENV
    from muster.spec.arrays import names_of  # few groups have an array

    return (*IN_ENV, *(f"{OF_PARAMETER}{name}" for name in names_of(group.array)))


def _unknown_names(template: str, known: tuple[str, ...]) -> Iterator[str]:
    """Names of placeholders that are not known. Secrets that the job does not have are its
    project's, which only the store knows."""
    return (
        name for name in unknown_placeholders(template, known) if not name.startswith(OF_SECRET)
    )


def _unknown(path: str, name: str, known: tuple[str, ...]) -> Problem:
    if name.startswith(OF_PARAMETER) and not any(one.startswith(OF_PARAMETER) for one in known):
        text = f"${{{name}}} is a parameter, and the group has no array"
        return Problem(path, text, f"give it one: array: {{{name[len(OF_PARAMETER) :]}: ...}}")
    if f"{OF_PARAMETER}{name}" in known:
        text = f"no placeholder named ${{{name}}}"
        return Problem(path, text, f'did you mean "{OF_PARAMETER}{name}"?')
    hint = suggestion(name, known)
    if not close_to(name, known):
        hint += f"; $${{{name}}} is the text itself"
    return Problem(path, f"no placeholder named ${{{name}}}", hint)


def bad_hostnames(spec: JobSpec) -> Iterator[Problem]:
    """Invalid host names and names of two nodes; one problem per group."""
    if spec.most_nodes > MAX_NODES:
        return  # too many to check; only an array may have so many
    run = f"{as_label(spec.name or 'job')}-{'0' * 6}"  # the longest name of a run
    taken: dict[str, int] = {}
    rank = before = 0
    for number, group in enumerate(spec.node_groups):
        if group.hostname and not any(unknown_placeholders(group.hostname, IN_HOSTNAME)):
            for problem in _of_group(group, rank, before, run, spec.most_nodes, taken):
                yield problem._replace(path=f"node_groups[{number}].hostname")
                break
        rank += group.nodes * group.most_replicas
        before += group.most_replicas


def _of_group(
    group: NodeGroup, first: int, before: int, run: str, total: int, taken: dict[str, int]
) -> Iterator[Problem]:
    for rank, facts in _nodes(group, (first, before), run):
        name = expand_hostname(group.hostname or "", facts)
        if not is_label(name):
            yield Problem(
                "", f"{short(name)}, of rank {rank}, is not a valid host name", LABEL_HINT
            )
        elif name == "localhost":
            yield Problem("", "localhost is reserved on each node", "use another name")
        elif name in taken:
            text = f"ranks {taken[name]} and {rank} would both be named {name}"
            yield Problem("", text, "use ${rank} to make it unique")
        elif (usual := _rank_of(name)) is not None and usual != rank and usual < total:
            text = f"rank {rank} would be named {name}, as rank {usual} is"
            yield Problem("", text, "node-N is rank N on every node, in addition to its host name")
        taken[name] = rank


def _nodes(
    group: NodeGroup, first: tuple[int, int], run: str
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The nodes of a group. first: its first rank, and its first replica's number in the run."""
    rank, before = first
    for replica in range(group.most_replicas):
        for index in range(group.nodes):
            facts = {"rank": rank, "group": group.name, "replica": replica, "index": index}
            yield rank, {**facts, "run.name": run, "run.replica": before + replica}
            rank += 1


def _rank_of(name: str) -> int | None:
    """The rank N of a name node-N."""
    start, _, number = name.partition("-")
    usual = start == "node" and number.isdigit() and str(int(number)) == number
    return int(number) if usual else None
