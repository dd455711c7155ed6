"""What cannot be done inside pods of a JobSet that is observed, as no node program is in them: the
commands of kubectl that do it."""

from __future__ import annotations

from shlex import quote

from muster.engines.kubernetes.names import JOBSET_NAME
from muster.engines.kubernetes.observed_logs import PodRecord
from muster.engines.kubernetes.observed_record import RECORD, ObservedRecord, pod_record
from muster.engines.remote.record import read_record
from muster.errors import EngineError
from muster.storage.home import RunDir

_WHY = "it was applied as it is, without Muster's node program in its pods"


def refuse_exec(folder: RunDir, rank: int) -> None:
    """Refuse to run a command in a node, or to copy files: raises EngineError if it is observed."""
    if (found := _observed(folder)) is not None:
        pod = _pod(folder, rank, found)
        where = f"kubectl exec -n {found.namespace} -it {pod}"
        raise EngineError(
            f"JobSet {found.name} is not entered by Muster: {_why(found)}; use "
            f"`{where} -- COMMAND`, and for files `kubectl cp -n {found.namespace}`"
        )


def refuse_forward(folder: RunDir, rank: int, port: int) -> None:
    """Refuse to connect to a port of a node: as `refuse_exec`."""
    if (found := _observed(folder)) is not None:
        pod = _pod(folder, rank, found, container=False)
        command = f"kubectl port-forward -n {found.namespace} {pod} {port}"
        raise EngineError(
            f"JobSet {found.name} is not entered by Muster: {_why(found)}; use `{command}`"
        )


def refuse_look(folder: RunDir, what: str) -> None:
    """Refuse to measure or read something in all nodes: as `refuse_exec`. what: it, as in "stacks
    cannot be read"."""
    if (found := _observed(folder)) is not None:
        pods = f"kubectl top pods -n {found.namespace} -l {JOBSET_NAME}={found.name}"
        raise EngineError(
            f"{what} of JobSet {found.name} cannot be read: {_why(found)}; `{pods}` shows what its "
            "pods use"
        )


def _observed(folder: RunDir) -> ObservedRecord | None:
    """None if the run has pods of Muster's own. Raises EngineError."""
    try:
        return read_record(folder.path / RECORD, ObservedRecord)
    except OSError as error:
        raise EngineError(f"the JobSet of the run is not known: {error}") from None


def _why(found: ObservedRecord) -> str:
    return _WHY if found.is_own else "it was adopted, and its pods have no node program of Muster"


def _pod(folder: RunDir, rank: int, found: ObservedRecord, *, container: bool = True) -> str:
    """The pod of a node as kubectl takes it, and its container."""
    try:
        known = read_record(pod_record(folder, rank), PodRecord)
    except OSError:
        known = None
    if known is None:
        return f"POD (one of `kubectl get pods -n {found.namespace} -l {JOBSET_NAME}={found.name}`)"
    return quote(known.pod) + (f" -c {quote(known.container)}" if container else "")
