"""Results of functions on nodes: returned values, and exceptions with their traceback."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from muster.errors import RunFailed
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Reason

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.client.run import JobRun
    from muster.frameworks.base import RoleSetup
    from muster.plan.model import RunPlan
    from muster.store.records import NodeRecord


class Results:
    """The results of the processes of a run that has ended. nodes: all, in rank order."""

    def __init__(
        self, run: JobRun, plan: RunPlan, api: MusterAPI, nodes: Sequence[NodeRecord]
    ) -> None:
        self._run = run
        self._api = api
        self._nodes = nodes
        self._plan = plan

    def value(self, rank: int) -> Any:
        """The value that the process of this rank returned.

        Raises the exception that it raised; RunFailed if it returned no result.
        """
        result = self._read(rank)
        if result is None:
            raise RunFailed(f"rank {rank} of {self._run.name} returned no result")
        if "value" not in result:
            _raise(self._run, rank, result)
        # safe to unpickle: written by Muster's program into a folder that only the user can write
        return pickle.loads(result["value"])

    def values(self) -> list[Any]:
        """The values of the ranks that called the function and succeeded, in rank order. Raises as
        `value`."""
        ranks: list[int] = []
        for node in self._nodes:
            if node.state != NodeState.SUCCEEDED or not self._role(node).program:
                continue
            if _launches(self._role(node)):
                # the launcher chose the number of ranks and their nodes
                current = {str(node.incarnation) for node in self._nodes}
                found = {rank: r for rank, r in self._all() if r["restart"] in current}
                return [self.value(rank) for rank in sorted(found) if "value" in found[rank]]
            ranks += self._ranks_of(node, self._plan.processes_of(node.rank))
        return [self.value(rank) for rank in ranks]

    def raise_failure(self) -> NoReturn:
        """Raise the exception of the node that failed first; RunFailed if it left none."""
        run, cause = self._run, self._run.cause
        if run.state == "FAILED" and cause is not None and cause["rank"] is not None:
            node = self._nodes[cause["rank"]]
            ranks = self._ranks_of(node, self._plan.processes_per_node)
            found = [(rank, self._read(rank)) for rank in ranks]
            if _launches(self._role(node)) and cause["reason"] == Reason.EXIT:
                found = [*self._all()]  # the launcher failed because of a rank, on any node
            for rank, result in found:
                # a result of an earlier incarnation is not why the run ended
                if result and "value" not in result and result["restart"] == str(node.incarnation):
                    _raise(run, rank, result)
        raise RunFailed(f"{run.name} is {run.state}{f': {run.details}' if run.details else ''}")

    def _role(self, node: NodeRecord) -> RoleSetup:
        return self._plan.group(node.group).role

    def _ranks_of(self, node: NodeRecord, count: int) -> range:
        """The ranks of the first `count` processes of a node."""
        first = node.rank * self._plan.processes_per_node
        return range(first, first + count)

    def _all(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every rank with its result, the oldest result first."""
        for rank in self._api.ranks_with_result(self._run.id):
            result = self._read(rank)
            if result is not None:
                yield rank, result

    def _read(self, rank: int) -> dict[str, Any] | None:
        data = self._api.result(self._run.id, rank)
        result: dict[str, Any] | None = None if data is None else pickle.loads(data)
        return result


def _launches(role: RoleSetup) -> bool:
    """Whether a launcher on the node starts the ranks of the program, on nodes that it chooses."""
    return bool(role.launcher) and role.processes is not None


def _raise(run: JobRun, rank: int, result: dict[str, Any]) -> NoReturn:
    try:
        error = pickle.loads(result["error"]) if result["error"] else None
    except Exception:  # noqa: BLE001  its class cannot be imported here
        error = None
    if not isinstance(error, BaseException):
        error = RunFailed(f"{result['type']}: {result['text']}")
    error.add_note(f"on rank {rank} of {run.name}:\n{result['traceback'].rstrip()}")
    raise error
