"""Names of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.plan.model import GroupPlan, NodePlan, RunPlan
from muster.spec.placeholders import as_label, expand_hostname


def with_names(plan: RunPlan, run_name: str) -> RunPlan:
    """The plan with the name of its run, and names of its nodes that depend on it."""
    label = as_label(run_name)
    nodes = tuple(
        _with_node_names(node, group.hostname, (label, number), plan)
        for group, number, node in _nodes_with_groups(plan)
    )
    return replace(plan, run_name=run_name, nodes=nodes)


def _nodes_with_groups(plan: RunPlan) -> Iterator[tuple[GroupPlan, int, NodePlan]]:
    """Each node with its group and the number of its replica, counted over all groups."""
    before = 0
    for group in plan.groups:
        for node in plan.nodes[group.first_rank : group.first_rank + group.size]:
            yield group, before + node.replica, node
        before += group.replicas


def service_names(plan: RunPlan) -> tuple[str, ...]:
    """The names that all nodes share (Kubernetes: those of their headless service)."""
    if plan.subdomain is None or plan.namespace is None:
        return ()
    return _namespace_forms(plan.subdomain, plan.namespace)


def _namespace_forms(name: str, namespace: str) -> tuple[str, ...]:
    """The forms of a name that resolvers on Kubernetes accept, the full one first."""
    qualified = f"{name}.{namespace}"
    return f"{qualified}.svc.cluster.local", f"{qualified}.svc", qualified, name


def _with_node_names(
    node: NodePlan, template: str, run: tuple[str, int], plan: RunPlan
) -> NodePlan:
    facts = {
        "rank": node.rank,
        "group": node.group,
        "replica": node.replica,
        "index": node.index,
        "run.name": run[0],
        "run.replica": run[1],
    }
    hostname = expand_hostname(template, facts)
    full: tuple[str, ...] = (f"{hostname}.{plan.subdomain}" if plan.subdomain else hostname,)
    if plan.subdomain and plan.namespace:
        full = _namespace_forms(full[0], plan.namespace)
    fqdn = full[0]
    # every node also has the name node-RANK
    others = dict.fromkeys((*full, f"node-{node.rank}"))
    others.pop(hostname, None)
    return replace(node, hostname=hostname, fqdn=fqdn, names=tuple(others))
