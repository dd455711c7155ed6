"""Choose nodes of a run by rank. Nodes of replicas that are scaled down cannot be chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from muster.describe.words import named
from muster.errors import InvalidInput, Problem
from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.ranks import format_ranks, shortened_ranks
from muster.lifecycle.states import ALIVE, NodeState
from muster.store.records import NodeFilter, NodeRecord, RunSummary
from muster.store.run_columns import StoredPlan

if TYPE_CHECKING:
    from muster.store.base import Store

#: Nodes that a hint names.
_NAMED = 8


def choose(
    store: Store, run: RunSummary, rank: int | None, *, field: str = "rank", hint: str = ""
) -> NodeRecord:
    """The node with a rank; the only one, or the only running one of an array, if rank is None.
    field: named in errors. hint: how a rank is given there, if that is not obvious. Raises
    InvalidInput."""
    if arrays := StoredPlan(store.runs.get(run.id)).arrays():
        return _ArrayNodes(store, run, arrays).choose(rank, field, hint)
    found = _present(store.runs.nodes(run.id))
    if rank is None and len(found) != 1:
        hints = [hint, _hint(found)] if hint else [_hint(found)]
        raise InvalidInput(
            Problem(field, f"{run.name} has {len(found)} nodes; name one", "; ".join(hints))
        )
    _check(run, found, [] if rank is None else [rank], field)
    return next(node for node in found if rank in (None, node.rank))


def check_ranks(store: Store, run: RunSummary, ranks: Collection[int]) -> None:
    """Raises InvalidInput for ranks that the run does not have and, of an array, if none of them
    runs."""
    if arrays := StoredPlan(store.runs.get(run.id)).arrays():
        _ArrayNodes(store, run, arrays).check(ranks)
    else:
        _check(run, _present(store.runs.nodes(run.id)), ranks, "rank")


def unknown_ranks(run: str, ranks: Iterable[int], hint: str, *, field: str = "rank") -> Problem:
    """The problem of ranks that a run does not have. run: its name."""
    return Problem(field, f"{run} has no rank {format_ranks(ranks)}", hint)


def not_running(store: Store, run: RunSummary, node: NodeRecord) -> Problem:
    """The problem of a node without processes."""
    state = NodeState(node.state)
    if arrays := StoredPlan(store.runs.get(run.id)).arrays():
        return _ArrayNodes(store, run, arrays).not_running(node.rank, state)
    if state is NodeState.PENDING:
        hint = f"`muster status {run.name}` says why"
        return Problem("", f"node-{node.rank} of {run.name} has not started", hint)
    hint = f"`muster logs {run.name} --rank {node.rank}` shows its output"
    text = f"node-{node.rank} of {run.name} has no processes: it is {state}"
    return Problem("", text, hint)


class _ArrayNodes:
    """The nodes of a run with arrays: it may have a hundred thousand, of which few run."""

    def __init__(self, store: Store, run: RunSummary, arrays: Sequence[GroupPolicy]) -> None:
        self._store, self._run, self._arrays = store, run, arrays

    def choose(self, rank: int | None, field: str, hint: str) -> NodeRecord:
        """See `nodes.choose`."""
        if rank is None:
            alive = self._store.runs.nodes(self._run.id, NodeFilter(states=[*ALIVE], limit=2))
            if len(alive) == 1:
                return alive[0]
            text = f"{self._run.name} has several replicas; name one"
            hints = [*([f"{hint}, or add --replica"] if hint else []), self._running()]
            field = "replica" if field == "rank" else field
            raise InvalidInput(Problem(field, text, "; ".join(hints)))
        self._check_known([rank], field)
        found = self._store.runs.nodes(self._run.id, NodeFilter(ranks=[rank]))
        if not found:
            raise InvalidInput(self.not_running(rank, NodeState.PENDING))
        return found[0]

    def check(self, ranks: Collection[int]) -> None:
        """See `nodes.check_ranks`."""
        self._check_known(ranks, "rank")
        if ranks and not self._store.runs.nodes(
            self._run.id, NodeFilter(ranks=ranks, states=[*ALIVE], limit=1)
        ):
            first = self._store.runs.nodes(self._run.id, NodeFilter(ranks=ranks, limit=1))
            state = NodeState(first[0].state) if first else NodeState.PENDING
            raise InvalidInput(self.not_running(min(ranks), state))

    def not_running(self, rank: int, state: NodeState) -> Problem:
        """See `nodes.not_running`."""
        array = self._array_of(rank)
        if array is None:
            what, option = f"node-{rank}", f"--rank {rank}"
        else:
            replica, index = divmod(rank - array.first_rank, array.nodes)
            what, option = f"replica {replica}", f"--replica {replica}"
            what = f"node {index} of {what}" if array.nodes > 1 else what
        hint = self._running()
        if state is NodeState.PENDING:
            return Problem("", f"{what} of {self._run.name} has not started", hint)
        if state is NodeState.SCALED_DOWN:
            text = f"{what} of {self._run.name} is not one of those that run (only)"
            return Problem("", text, hint)
        hint = f"`muster logs {self._run.name} {option}` shows its output; {hint}"
        return Problem("", f"{what} of {self._run.name} has no processes: it is {state}", hint)

    def _array_of(self, rank: int) -> GroupPolicy | None:
        return next((array for array in self._arrays if rank in array.ranks), None)

    def _check_known(self, ranks: Collection[int], field: str) -> None:
        size = sum(
            group.size for group in StoredPlan(self._store.runs.get(self._run.id)).policies()
        )
        if unknown := [rank for rank in ranks if not 0 <= rank < size]:
            hint = f"ranks are 0 to {size - 1}"
            raise InvalidInput(unknown_ranks(self._run.name, unknown, hint, field=field))

    def _running(self) -> str:
        """What runs now, for a hint."""
        alive = NodeFilter(states=[*ALIVE], limit=100)
        nodes = self._store.runs.nodes(self._run.id, alive)
        running: dict[str, set[int]] = {}
        for node in nodes:
            if any(array.name == node.group for array in self._arrays):
                running.setdefault(node.group, set()).add(node.replica)
        if not running:
            return f"`muster runs table {self._run.name}` lists its replicas"
        texts = [
            (f"{name}: " if len(self._arrays) > 1 else "") + shortened_ranks(numbers, _NAMED)
            for name, numbers in running.items()
        ]
        return f"running: {'; '.join(texts)}"


def _present(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """The nodes without those that are scaled down."""
    return [node for node in nodes if node.state != NodeState.SCALED_DOWN]


def _check(
    run: RunSummary, nodes: Sequence[NodeRecord], ranks: Collection[int], field: str
) -> None:
    known = {node.rank for node in nodes}
    if unknown := {*ranks} - known:
        raise InvalidInput(unknown_ranks(run.name, unknown, _hint(nodes), field=field))


def _hint(nodes: Iterable[NodeRecord]) -> str:
    return f"its nodes: {named([f'{node.rank} ({node.group})' for node in nodes], _NAMED)}"
