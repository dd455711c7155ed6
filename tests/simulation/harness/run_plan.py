"""The plan of a simulated run, with only the parts that the controller needs."""

from __future__ import annotations

from muster.lifecycle.policy import Policy
from muster.plan.model import NodePlan, RunPlan


def run_plan(seed: int, policy: Policy) -> RunPlan:
    """A plan with this policy. The run is named after its seed."""
    nodes = tuple(
        NodePlan(rank, group.name, replica, index, f"sim-{rank}", name, "", name)
        for group in policy.groups
        for replica in range(group.replicas)
        for index, rank in enumerate(group.replica_ranks(replica))
        for name in (f"node-{rank}",)
    )
    return RunPlan(
        run_id=f"simulated-{seed}",
        run_name=f"simulated-{seed}",
        job_id=f"job-{seed}",
        job_name=f"simulated-{seed}",
        framework="generic",
        processes_per_node=1,
        network="shared",
        network_reason="",
        policy=policy,
        groups=(),
        nodes=nodes,
    )
