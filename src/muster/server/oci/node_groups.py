"""The node groups of a job run, as the API shows them (OCI: nodeGroupDetailsList). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from muster.lifecycle.states import ENDED, NodeState
from muster.spec.formats.oci.model import JobDetails
from muster.store.records import NodeRecord

_ACTIVE = (NodeState.RUNNING, NodeState.READY, NodeState.SUCCEEDED)


def node_groups(
    job: JobDetails, nodes: Sequence[NodeRecord], *, ended: bool
) -> list[dict[str, str]]:
    """The groups of a job with their states. ended: whether the job run has."""
    configured = job.job_node_configuration_details
    if configured is None:
        return []
    groups = configured.job_node_group_configuration_details_list or ()
    return [
        _group(group.name, [node for node in nodes if node.group == group.name], ended=ended)
        for group in groups
    ]


def _group(name: str, nodes: Sequence[NodeRecord], *, ended: bool) -> dict[str, str]:
    states = [NodeState(node.state) for node in nodes]
    failed = [node for node in nodes if node.state == NodeState.FAILED]
    if failed and ended:
        state = "FAILED"
    elif ended or (states and all(one in ENDED for one in states)):
        state = "DELETED"
    elif states and all(one in _ACTIVE for one in states):
        state = "ACTIVE"
    else:
        state = "CREATING"
    return {"name": name, "lifecycleState": state, "lifecycleDetails": _details(failed)}


def _details(failed: Sequence[NodeRecord]) -> str:
    if not failed:
        return ""
    first, others = failed[0], len(failed) - 1
    text = f"node rank {first.rank} failed"
    if first.exit_code is not None:
        text += f" with exit code {first.exit_code}"
    return f"{text}, and {others} more" if others else text
