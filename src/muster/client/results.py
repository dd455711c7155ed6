"""What functions left behind on nodes: values, and exceptions with where they came from."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from muster.errors import RunFailed
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Reason
from muster.node.files import read_regular
from muster.node.function import RESULT

if TYPE_CHECKING:
    from muster.client.run import JobRun
    from muster.frameworks.base import RoleSetup
    from muster.plan.model import RunPlan
    from muster.storage.home import RunDir
    from muster.store.records import NodeRecord


class Left:
    """What the processes of a run that has ended left behind. nodes: all of its, by rank."""

    def __init__(
        self, run: JobRun, plan: RunPlan, folder: RunDir, nodes: Sequence[NodeRecord]
    ) -> None:
        self._run = run
        self._folder = folder
        self._nodes = nodes
        self._plan = plan

    def value(self, rank: int) -> Any:
        """What the process of that rank returned. Raises what it raised; RunFailed if it left
        nothing."""
        said = _read(self._folder, rank)
        if said is None:
            raise RunFailed(f"{self._run.name}: rank {rank} has left no result")
        if "value" not in said:
            _raise(self._run, rank, said)
        return pickle.loads(said["value"])  # written by our own program, in a folder that is ours

    def values(self) -> list[Any]:
        """What was returned where it was called and has succeeded, by rank. Raises as `value`."""
        ranks: list[int] = []
        for node in self._nodes:
            if node.state != NodeState.SUCCEEDED or not self._role(node).program:
                continue
            if _launches(self._role(node)):
                # how many ranks there are, and where, was the launcher's affair
                lives = {str(node.incarnation) for node in self._nodes}
                told = {rank: said for rank, said in self._all() if said["restart"] in lives}
                return [self.value(rank) for rank in sorted(told) if "value" in told[rank]]
            ranks += self._own(node, self._plan.processes_of(node.rank))
        return [self.value(rank) for rank in ranks]

    def raise_failure(self) -> NoReturn:
        """Raise what ended the run: the exception of the node that failed first, if it left one."""
        run, cause = self._run, self._run.cause
        if run.state == "FAILED" and cause is not None and cause["rank"] is not None:
            node = self._nodes[cause["rank"]]
            own = self._own(node, self._plan.processes_per_node)
            told = [(rank, _read(self._folder, rank)) for rank in own]
            if _launches(self._role(node)) and cause["reason"] == Reason.EXIT:
                told = [*self._all()]  # the launcher's end tells of a rank's, which may be anywhere
            for rank, said in told:
                # an earlier life's is not what the run ended with
                if said and "value" not in said and said["restart"] == str(node.incarnation):
                    _raise(run, rank, said)
        raise RunFailed(f"{run.name} is {run.state}{f': {run.details}' if run.details else ''}")

    def _role(self, node: NodeRecord) -> RoleSetup:
        return self._plan.group(node.group).role

    def _own(self, node: NodeRecord, count: int) -> range:
        """The ranks of so many processes of a node."""
        first = node.rank * self._plan.processes_per_node
        return range(first, first + count)

    def _all(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """All there is, what was left first before the others."""
        found = list(self._folder.outputs.glob(f"rank-*/{RESULT}"))
        for path in sorted(found, key=lambda path: path.stat().st_mtime_ns):
            rank = path.parent.name.removeprefix("rank-")
            said = _read(self._folder, int(rank)) if rank.isdecimal() else None
            if said is not None:
                yield int(rank), said


def _launches(role: RoleSetup) -> bool:
    """Whether what runs on such a node starts the program's ranks, wherever it likes."""
    return bool(role.launcher) and role.processes is not None


def _read(folder: RunDir, rank: int) -> dict[str, Any] | None:
    try:
        data = read_regular(folder.output(rank) / RESULT)
    except OSError:
        return None
    said: dict[str, Any] = pickle.loads(data)
    return said


def _raise(run: JobRun, rank: int, said: dict[str, Any]) -> NoReturn:
    where = f"on rank {rank} of {run.name}:\n{said['traceback'].rstrip()}"
    try:
        error = pickle.loads(said["error"]) if said["error"] else None
    except Exception:  # noqa: BLE001  its class is not to be had here
        error = None
    if not isinstance(error, BaseException):
        error = RunFailed(f"{said['type']}: {said['text']}")
    error.add_note(where)
    raise error
