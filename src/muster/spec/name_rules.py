"""Rules for what differs from node to node: host names and `node_env`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.errors import Problem
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.placeholders import (
    IN_ENV,
    IN_HOSTNAME,
    as_label,
    expand_hostname,
    unknown_placeholders,
)
from muster.spec.values import LABEL_HINT, MAX_NODES, is_label
from muster.spec.wording import close_to, short, suggestion


def name_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """What single groups say that cannot be."""
    for number, group in enumerate(spec.node_groups):
        path = f"node_groups[{number}]"
        for name in unknown_placeholders(group.hostname or "", IN_HOSTNAME):
            text = f"no placeholder named ${{{name}}}"
            if name in IN_ENV:
                text = f"${{{name}}} is not known yet when nodes get their names"
            yield Problem(f"{path}.hostname", text, suggestion(name, IN_HOSTNAME))
        for variable, value in group.node_env.items():
            place = f"{path}.node_env.{variable}"
            for name in unknown_placeholders(value, IN_ENV):
                yield _unknown(place, name)
            if variable in spec.env or variable in group.env:
                yield Problem(place, f"{variable} is in env, too", "keep the one you mean")
        for position, word in enumerate(group.node_args or ()):
            for name in unknown_placeholders(word, IN_ENV):
                yield _unknown(f"{path}.node_args[{position}]", name)


def _unknown(path: str, name: str) -> Problem:
    hint = suggestion(name, IN_ENV)
    if not close_to(name, IN_ENV):
        hint += f"; $${{{name}}} is the text itself"
    return Problem(path, f"no placeholder named ${{{name}}}", hint)


def bad_hostnames(spec: JobSpec) -> Iterator[Problem]:
    """Host names that are none, or that two nodes would share; one problem a group."""
    if spec.most_nodes > MAX_NODES:
        return  # told elsewhere, and not to be tried
    run = f"{as_label(spec.name or 'job')}-{'0' * 6}"  # as long as a run's name will ever be
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
            yield Problem("", f"{short(name)}, of rank {rank}, is no host name", LABEL_HINT)
        elif name == "localhost":
            yield Problem("", "localhost is what each node calls itself", "use another name")
        elif name in taken:
            text = f"ranks {taken[name]} and {rank} would both be called {name}"
            yield Problem("", text, "${rank} makes it a node's own")
        elif (usual := _rank_of(name)) is not None and usual != rank and usual < total:
            text = f"rank {rank} would be called {name}, as rank {usual} is"
            yield Problem("", text, "node-N is rank N on every node, whatever it is called besides")
        taken[name] = rank


def _nodes(
    group: NodeGroup, first: tuple[int, int], run: str
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """first: its first rank, and the number of its first replica among all."""
    rank, before = first
    for replica in range(group.most_replicas):
        for index in range(group.nodes):
            facts = {"rank": rank, "group": group.name, "replica": replica, "index": index}
            yield rank, {**facts, "run.name": run, "run.replica": before + replica}
            rank += 1


def _rank_of(name: str) -> int | None:
    """The rank of which this is the usual name."""
    start, _, number = name.partition("-")
    usual = start == "node" and number.isdigit() and str(int(number)) == number
    return int(number) if usual else None
