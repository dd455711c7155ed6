"""Choose nodes of a run by rank. Nodes of replicas that are scaled down cannot be chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from muster.errors import InvalidInput, Problem
from muster.lifecycle.states import NodeState
from muster.store.records import NodeRecord, RunSummary

#: Nodes that a hint names.
_NAMED = 8


def present(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """The nodes without those that are scaled down."""
    return [node for node in nodes if node.state != NodeState.SCALED_DOWN]


def choose(run: RunSummary, nodes: Sequence[NodeRecord], rank: int | None) -> NodeRecord:
    """The node with a rank; the only one if rank is None. Raises InvalidInput."""
    found = present(nodes)
    if rank is None and len(found) != 1:
        text = f"is missing: {run.name} has {len(found)} nodes"
        raise InvalidInput(Problem("rank", text, _hint(nodes)))
    check_ranks(run, nodes, [] if rank is None else [rank])
    return next(node for node in found if rank in (None, node.rank))


def check_ranks(run: RunSummary, nodes: Sequence[NodeRecord], ranks: Collection[int]) -> None:
    """Raises InvalidInput with each of these ranks that the run does not have."""
    known = {node.rank for node in present(nodes)}
    problems = [
        Problem("rank", f"{run.name} has no node {rank}", _hint(nodes))
        for rank in ranks
        if rank not in known
    ]
    if problems:
        raise InvalidInput(*problems)


def _hint(nodes: Iterable[NodeRecord]) -> str:
    return f"its nodes: {named(f'{node.rank} ({node.group})' for node in present(nodes))}"


def named(words: Iterable[str]) -> str:
    """The first of these words, as a list."""
    every = list(words)
    return f"{', '.join(every[:_NAMED])}{', ...' if len(every) > _NAMED else ''}"
