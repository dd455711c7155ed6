"""Choose nodes of a run by rank. Nodes of replicas that are scaled down cannot be chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from muster.describe.words import named
from muster.errors import InvalidInput, Problem
from muster.lifecycle.ranks import format_ranks
from muster.lifecycle.states import NodeState
from muster.store.records import NodeRecord, RunSummary

#: Nodes that a hint names.
_NAMED = 8


def present(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """The nodes without those that are scaled down."""
    return [node for node in nodes if node.state != NodeState.SCALED_DOWN]


def choose(
    run: RunSummary,
    nodes: Sequence[NodeRecord],
    rank: int | None,
    *,
    field: str = "rank",
    hint: str = "",
) -> NodeRecord:
    """The node with a rank; the only one if rank is None. field: named in errors. hint: how a rank
    is given there, if that is not obvious. Raises InvalidInput."""
    found = present(nodes)
    if rank is None and len(found) != 1:
        hints = [hint, _hint(nodes)] if hint else [_hint(nodes)]
        raise InvalidInput(
            Problem(field, f"{run.name} has {len(found)} nodes; name one", "; ".join(hints))
        )
    check_ranks(run, nodes, [] if rank is None else [rank], field=field)
    return next(node for node in found if rank in (None, node.rank))


def check_ranks(
    run: RunSummary, nodes: Sequence[NodeRecord], ranks: Collection[int], *, field: str = "rank"
) -> None:
    """Raises InvalidInput for ranks that the run does not have. field: named in errors."""
    known = {node.rank for node in present(nodes)}
    if unknown := {*ranks} - known:
        raise InvalidInput(unknown_ranks(run.name, unknown, _hint(nodes), field=field))


def unknown_ranks(run: str, ranks: Iterable[int], hint: str, *, field: str = "rank") -> Problem:
    """The problem of ranks that a run does not have. run: its name."""
    return Problem(field, f"{run} has no rank {format_ranks(ranks)}", hint)


def _hint(nodes: Iterable[NodeRecord]) -> str:
    return f"its nodes: {named([f'{node.rank} ({node.group})' for node in present(nodes)], _NAMED)}"
