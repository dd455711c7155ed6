"""What cannot be done inside pods of a JobSet that is observed, as no node program is in them: the
commands of kubectl that do it."""

from __future__ import annotations

from shlex import quote

from muster.engines.kubernetes.names import JOBSET_NAME
from muster.engines.kubernetes.observed_pods import NodePod, read_pods
from muster.engines.kubernetes.observed_record import RECORD, ObservedRecord
from muster.engines.remote.record import read_record
from muster.errors import EngineError
from muster.storage.home import RunDir

_WHY = "it was applied as it is, without Muster's node program in its pods"


def refuse_exec(folder: RunDir, rank: int) -> None:
    """Refuse to run a command in a node, or to copy files: raises EngineError if it is observed."""
    if (found := observed(folder)) is not None:
        pod = _pod(folder, rank, found)
        where = f"kubectl exec -n {found.namespace} -it {pod}"
        raise EngineError(
            f"JobSet {found.name} is not entered by Muster: {why_unentered(found)}; use "
            f"`{where} -- COMMAND`, and for files `kubectl cp -n {found.namespace}`"
        )


def refuse_forward(folder: RunDir, rank: int, port: int) -> None:
    """Refuse to connect to a port of a node: as `refuse_exec`."""
    if (found := observed(folder)) is not None:
        pod = _pod(folder, rank, found, container=False)
        command = f"kubectl port-forward -n {found.namespace} {pod} {port}"
        raise EngineError(
            f"JobSet {found.name} is not entered by Muster: {why_unentered(found)}; use `{command}`"
        )


def refuse_stacks(folder: RunDir) -> None:
    """Refuse to read the stacks of nodes: as `refuse_exec`."""
    if (found := observed(folder)) is not None:
        raise EngineError(
            f"stacks of JobSet {found.name} cannot be read: {why_unentered(found)}; in a pod whose "
            "image has py-spy, `py-spy dump --pid 1` shows them"
        )


def observed(folder: RunDir) -> ObservedRecord | None:
    """The JobSet of a run that is observed; None if the run has pods of Muster's own. Raises
    EngineError."""
    try:
        return read_record(folder.path / RECORD, ObservedRecord)
    except OSError as error:
        raise EngineError(f"the JobSet of the run is not known: {error}") from None


def pods_of(folder: RunDir, found: ObservedRecord) -> dict[int, NodePod]:
    """See `observed_pods.read_pods`. Raises EngineError."""
    try:
        return read_pods(folder)
    except OSError as error:
        raise EngineError(f"the pods of JobSet {found.name} are not known: {error}") from None


def why_unentered(found: ObservedRecord) -> str:
    """Why Muster itself is not in the pods of a JobSet: a clause."""
    return _WHY if found.is_own else "it was adopted, and its pods have no node program of Muster"


def _pod(folder: RunDir, rank: int, found: ObservedRecord, *, container: bool = True) -> str:
    """The pod of a node as kubectl takes it, and its container."""
    known = pods_of(folder, found).get(rank)
    if known is None:
        return f"POD (one of `kubectl get pods -n {found.namespace} -l {JOBSET_NAME}={found.name}`)"
    return quote(known.name) + (f" -c {quote(known.container)}" if container else "")
