"""Convert a run's status to rows of the store, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from muster.lifecycle.blocks import BlockList
from muster.lifecycle.ranks import to_ranges
from muster.lifecycle.states import NodeState, RunState
from muster.lifecycle.status import NodeStatus, Reason, RunStatus
from muster.plan.model import NodePlan, RunPlan
from muster.storage.home import Home
from muster.storage.sealing import seal, unseal
from muster.store.records import CorruptRecord, NodeChange, NodeRecord, RunRecord
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
    retries: int = 0
    scaling_down: bool = False
    unreachable_since: float | None = None
    unreachable_why: str = ""
    waits_for: str = ""
    away: float = 0.0
    host: str = ""
    address: str = ""
    host_id: str = ""


_INTENT = msgspec.json.Decoder(Intent)
_NO_INTENT = Intent()
#: Nodes of an array have no row while they are like this.
_FIRST = frozenset({NodeStatus(), NodeStatus(NodeState.SCALED_DOWN)})
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


def node_record(plan: NodePlan, node: NodeStatus, metrics: str = "") -> NodeRecord:
    """The row of one node. metrics: what its program left, as JSON; "" if nothing is new."""
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
        intent=_intent(node),
        metrics=metrics,
    )


def _intent(node: NodeStatus) -> str:
    intent = Intent(*_intent_fields(node))
    return "" if intent == _NO_INTENT else msgspec.json.encode(intent).decode()


def node_changes(
    plan: RunPlan, before: RunStatus, after: RunStatus, metrics: Mapping[int, str]
) -> tuple[list[NodeRecord], list[NodeChange]]:
    """What to record of the nodes that have changed: rows of those that may have none yet, changes
    of the others. metrics: see `Decision.metrics`."""
    records: list[NodeRecord] = []
    changes: list[NodeChange] = []
    if before.nodes is after.nodes:
        return records, changes
    for (old, node), ranks in BlockList.of(after.nodes).changes_from(before.nodes).items():
        for index, members in plan.policy.by_group(ranks):
            if old in _FIRST and plan.policy.groups[index].is_array:
                records += [node_record(plan.node(r), node, metrics.get(r, "")) for r in members]
                continue
            changes += [_change(node, [r], metrics[r]) for r in members if r in metrics]
            if others := [rank for rank in members if rank not in metrics]:
                changes.append(_change(node, others))
    return records, changes


def _change(node: NodeStatus, ranks: Sequence[int], metrics: str = "") -> NodeChange:
    return NodeChange(
        to_ranges(ranks),
        state=node.state,
        exit_code=node.exit_code,
        started_at=node.started_at,
        finished_at=node.finished_at,
        signal=node.signal,
        incarnation=node.incarnation,
        intent=_intent(node),
        metrics=metrics,
    )


def status_of(run: RunRecord, nodes: Sequence[NodeRecord], policy: Policy) -> RunStatus:
    """The recorded status of a run. nodes: in rank order; those of an array that are as they were
    at first may be missing. Raises CorruptRecord."""
    from muster.lifecycle.counts import count_nodes

    arrays = sum(group.size for group in policy.groups if group.is_array)
    if not policy.size - arrays <= len(nodes) <= policy.size:
        raise corrupt(run, f"it has {len(nodes)} of {policy.size} nodes")
    statuses = BlockList(policy.first_nodes())
    for node in nodes:
        statuses[node.rank] = node_status(node)
    kept = _with_former_retries(lifecycle_of(run), statuses, policy)
    status = _status(run, kept)
    # the alarm makes the next step check all deadlines
    return replace(status, nodes=statuses, alarm=0.0, counts=count_nodes(policy, statuses))


def status_without_nodes(run: RunRecord) -> RunStatus:
    """As `status_of`, to describe a run with many nodes. Raises CorruptRecord."""
    return _status(run, lifecycle_of(run))


def _status(run: RunRecord, kept: Lifecycle) -> RunStatus:
    return RunStatus(
        nodes=(),
        state=RunState(run.state),
        details=run.details,
        attempt=run.attempt,
        exit_code=run.exit_code,
        started_at=run.started_at,
        finished_at=run.finished_at,
        **asdict(kept),
    )


def _with_former_retries(
    kept: Lifecycle, nodes: BlockList[NodeStatus], policy: Policy
) -> Lifecycle:
    """Move retries of replicas, which earlier versions stored with the run by `group/replica`, to
    the nodes."""
    former = {key: used for key, used in kept.spent.retries.items() if "/" in key}
    if not former:
        return kept
    for group in policy.groups:
        for replica in range(group.replicas):
            used = former.get(f"{group.name}/{replica}")
            if used is not None:
                first = group.replica_ranks(replica)[0]
                nodes[first] = replace(nodes[first], retries=used)
    others = {key: used for key, used in kept.spent.retries.items() if key not in former}
    return replace(kept, spent=replace(kept.spent, retries=others))


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
