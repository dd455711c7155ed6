"""What functions left behind on nodes: values, and exceptions with where they came from."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from muster.errors import RunFailed
from muster.node.function import RESULT

if TYPE_CHECKING:
    from muster.client.run import JobRun
    from muster.storage.home import RunDir
    from muster.store.records import NodeRecord


def value_of(run: JobRun, folder: RunDir, rank: int) -> Any:
    """What the process of that rank returned. Raises what it raised; RunFailed if it left
    nothing."""
    said = _read(folder, rank)
    if said is None:
        raise RunFailed(f"{run.name}: rank {rank} has left no result")
    if "value" not in said:
        _raise(run, rank, said)
    return pickle.loads(said["value"])  # written by our own program, in a folder that is ours


def raise_failure(run: JobRun, folder: RunDir, nodes: Sequence[NodeRecord]) -> NoReturn:
    """Raise what ended a run: the exception of the node that failed first, if it left one."""
    cause = run.cause
    if run.state == "FAILED" and cause is not None and cause["rank"] is not None:
        node = nodes[cause["rank"]]
        each = run.processes_per_node
        for rank in range(node.rank * each, (node.rank + 1) * each):
            said = _read(folder, rank)
            # an earlier life's is not what the run ended with
            if (
                said is not None
                and "value" not in said
                and said["restart"] == str(node.incarnation)
            ):
                _raise(run, rank, said)
    raise RunFailed(f"{run.name} is {run.state}{f': {run.details}' if run.details else ''}")


def _read(folder: RunDir, rank: int) -> dict[str, Any] | None:
    try:
        data = (folder.output(rank) / RESULT).read_bytes()
    except FileNotFoundError:
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
