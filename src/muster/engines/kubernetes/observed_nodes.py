"""The nodes of a JobSet that is observed, for commands: which pods they have, and what cannot be
done in these, as no node program is in them, with the command that does it."""

from __future__ import annotations

from shlex import quote

from muster.engines.kubernetes.names import JOBSET_NAME
from muster.engines.kubernetes.observed_pods import NodePod, read_pods
from muster.engines.kubernetes.observed_record import RECORD, ObservedRecord
from muster.engines.remote.record import read_record
from muster.errors import EngineError, InvalidInput, Problem
from muster.storage.home import RunDir

_WHY = "it was applied as it is, without Muster's node program in its pods"


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


def node_pod(folder: RunDir, rank: int, found: ObservedRecord) -> NodePod:
    """The pod of a node that runs. Raises EngineError if it is not known."""
    known = pods_of(folder, found).get(rank)
    if known is None:
        pods = f"kubectl get pods -n {found.namespace} -l {JOBSET_NAME}={found.name}"
        raise EngineError(
            f"the pod of node-{rank} is not known yet: try again in a moment; `{pods}` lists all"
        )
    return known


def refuse_forward(folder: RunDir, rank: int, port: int) -> None:
    """Refuse to connect to a port of a node: raises InvalidInput if it is observed."""
    if (found := observed(folder)) is not None:
        pod = quote(node_pod(folder, rank, found).name)
        command = f"kubectl port-forward -n {found.namespace} {pod} {port}"
        text = f"Muster cannot connect to ports of JobSet {found.name}: {why_unentered(found)}"
        raise InvalidInput(Problem("", text, f"use `{command}`"))


def refuse_stacks(folder: RunDir) -> None:
    """Refuse to read the stacks of nodes: as `refuse_forward`."""
    if (found := observed(folder)) is not None:
        text = f"stacks of JobSet {found.name} cannot be read: {why_unentered(found)}"
        command = "muster exec RUN --rank N -- py-spy dump --pid 1"
        hint = f"in a pod whose image has py-spy, `{command}` shows them"
        raise InvalidInput(Problem("", text, hint))
