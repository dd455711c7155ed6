"""Convert a run's status to rows of the store, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter, is_not
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from muster.plan.model import NodePlan, RunPlan
from muster.storage.home import Home
from muster.storage.sealing import seal, unseal
from muster.store.records import CorruptRecord, NodeRecord, RunRecord
from muster.store.run_columns import Lifecycle, corrupt, lifecycle_of

if TYPE_CHECKING:
    from muster.lifecycle.policy import Policy


#: Keys in the stored JSON where they differ from the names of the fields.
_INTENT_KEYS = {"next_incarnation": "again", "scaling_down": "parking"}


class Intent(Struct, frozen=True, omit_defaults=True, rename=_INTENT_KEYS):
    """The fields of `NodeStatus` without a column, stored as JSON in the node's `intent`."""

    since: float | None = None
    term_at: float | None = None
    kill_at: float | None = None
    killed: bool = False
    fault: Reason | None = None
    next_incarnation: int | None = None
    not_before: float | None = None
    scaling_down: bool = False


_INTENT = msgspec.json.Decoder(Intent)
_NO_INTENT = Intent()
_lifecycle_fields = attrgetter(*Lifecycle.__struct_fields__)
_intent_fields = attrgetter(*Intent.__struct_fields__)


def run_changes(before: RunStatus, after: RunStatus) -> dict[str, Any]:
    """The run's columns that have changed. The others are not written: the state has indexes."""
    old = run_columns(before)
    return {name: value for name, value in run_columns(after).items() if value != old[name]}


def run_columns(status: RunStatus) -> dict[str, Any]:
    """The run's columns with this status."""
    kept = Lifecycle(*_lifecycle_fields(status))
    counted = () if status.counts is None else status.counts.groups
    return {
        "state": status.state,
        "details": status.details,
        "attempt": status.attempt,
        "started_at": status.started_at,
        "finished_at": status.finished_at,
        "exit_code": status.exit_code,
        "node_count": len(status.nodes) - sum(group.scaled_down for group in counted),
        "lifecycle": msgspec.to_builtins(kept),
    }


def sealed_plan(home: Home, plan: RunPlan) -> dict[str, Any]:
    """The plan as data of a record, with its secrets sealed. Raises InvalidInput as `seal`."""
    data = plan.to_json()
    nodes = data.pop("nodes")  # there may be thousands; they have only names and addresses
    return {**seal(home, data), "nodes": nodes}


def plan_to_run(home: Home, run: RunRecord) -> RunPlan:
    """The plan of a run, with its secrets. Raises CorruptRecord, InvalidInput as `unseal`."""
    data = {name: value for name, value in run.plan.items() if name != "nodes"}
    plan = unseal(home, data, f"run {run.name}")
    return plan_of(run if plan is data else replace(run, plan={**run.plan, **plan}))


def plan_of(run: RunRecord) -> RunPlan:
    """The plan of a run, its secrets still sealed: what decides and shows needs no key. Raises
    CorruptRecord."""
    try:
        return RunPlan.from_json(run.plan)
    except (msgspec.ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        # a plan of an older version is rewritten before it is checked
        raise corrupt(run, f"plan: {error}") from None


def node_record(plan: NodePlan, node: NodeStatus) -> NodeRecord:
    """The row of one node."""
    intent = Intent(*_intent_fields(node))
    return NodeRecord(
        rank=plan.rank,
        group=plan.group,
        replica=plan.replica,
        index=plan.index,
        node_id=plan.node_id,
        fqdn=plan.fqdn,
        address=plan.address,
        state=node.state,
        exit_code=node.exit_code,
        started_at=node.started_at,
        finished_at=node.finished_at,
        signal=node.signal,
        incarnation=node.incarnation,
        intent="" if intent == _NO_INTENT else msgspec.json.encode(intent).decode(),
    )


def changed_nodes(plan: RunPlan, before: RunStatus, after: RunStatus) -> list[NodeRecord]:
    """Rows of the nodes that have changed."""
    if before.nodes is after.nodes:
        return []
    # of thousands of nodes few change in a step; this comparison runs in C
    differ = map(is_not, before.nodes, after.nodes)
    changed = compress(range(len(after.nodes)), differ)
    return [node_record(plan.nodes[rank], after.nodes[rank]) for rank in changed]


def status_of(run: RunRecord, nodes: Sequence[NodeRecord], policy: Policy) -> RunStatus:
    """The recorded status of a run. nodes: in rank order. Raises CorruptRecord."""
    from muster.lifecycle.counts import count_nodes

    if len(nodes) != policy.size:
        raise corrupt(run, f"it has {len(nodes)} of {policy.size} nodes")
    statuses = tuple(node_status(node) for node in nodes)
    return RunStatus(
        nodes=statuses,
        state=RunState(run.state),
        details=run.details,
        attempt=run.attempt,
        exit_code=run.exit_code,
        started_at=run.started_at,
        finished_at=run.finished_at,
        alarm=0.0,  # makes the next step check all deadlines
        counts=count_nodes(policy, statuses),
        **asdict(lifecycle_of(run)),
    )


def node_status(node: NodeRecord) -> NodeStatus:
    """The status of a node. Raises CorruptRecord."""
    status = NodeStatus(
        state=NodeState(node.state),
        incarnation=node.incarnation,
        exit_code=node.exit_code,
        signal=node.signal,
        started_at=node.started_at,
        finished_at=node.finished_at,
    )
    if not node.intent:
        return status
    try:
        intent = _INTENT.decode(node.intent)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"the record of node {node.rank} is corrupt: {error}") from None
    return replace(status, **asdict(intent))
