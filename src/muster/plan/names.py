"""Names of nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.plan.model import GroupPlan, NodePlan, RunPlan
from muster.spec.placeholders import as_label, expand_hostname


def with_names(plan: RunPlan, run_name: str) -> RunPlan:
    """The plan with the name of its run, and names of its nodes that depend on it."""
    plan = replace(plan, run_name=run_name)
    return replace(plan, nodes=tuple(_named_nodes(plan)))


def _named_nodes(plan: RunPlan) -> Iterator[NodePlan]:
    label, before = as_label(plan.run_name), 0
    for group in plan.groups:
        for slot in plan.slots(group):
            node = plan.nodes[slot]
            yield _named(node, group, (label, before + node.replica), plan)
        before += group.replicas


def named(node: NodePlan, plan: RunPlan) -> NodePlan:
    """The node with its names."""
    before = 0
    for group in plan.groups:
        if group.name == node.group:
            break
        before += group.replicas
    return _named(node, group, (as_label(plan.run_name), before + node.replica), plan)


def node_names(node: NodePlan) -> tuple[str, ...]:
    """All names of a node. The FQDN is first: a reverse lookup returns the first name."""
    return tuple(dict.fromkeys((node.fqdn, node.hostname, *node.names, f"node-{node.rank}")))


def names_found_by(plan: RunPlan, node: NodePlan) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The nodes that a node finds by their names, which are those of no array and of its own
    cluster: their addresses, as far as these are known, and the names."""
    shared = service_names(plan)
    alone = (one for one in plan.nodes if not plan.group(one.group).is_array)
    own = plan.cluster(node) if plan.group(node.group).is_array else ()
    for one in (*alone, *own):
        if one.address:
            yield one.address, (*node_names(one), *shared)


def service_names(plan: RunPlan) -> tuple[str, ...]:
    """The names that all nodes share (Kubernetes: those of their headless service)."""
    if plan.subdomain is None or plan.namespace is None:
        return ()
    return _namespace_forms(plan.subdomain, plan.namespace)


def _namespace_forms(name: str, namespace: str) -> tuple[str, ...]:
    """The forms of a name that resolvers on Kubernetes accept, the full one first."""
    qualified = f"{name}.{namespace}"
    return f"{qualified}.svc.cluster.local", f"{qualified}.svc", qualified, name


def _named(node: NodePlan, group: GroupPlan, run: tuple[str, int], plan: RunPlan) -> NodePlan:
    """run: the run's name as a label, and the number of the replica, counted over all groups."""
    facts = {
        "rank": node.rank,
        "group": node.group,
        "replica": node.replica,
        "index": node.index,
        "run.name": run[0],
        "run.replica": run[1],
    }
    hostname = expand_hostname(group.hostname, facts)
    full: tuple[str, ...] = (f"{hostname}.{plan.subdomain}" if plan.subdomain else hostname,)
    if plan.subdomain and plan.namespace:
        full = _namespace_forms(full[0], plan.namespace)
    # every node also has the name node-RANK
    others = dict.fromkeys((*full, f"node-{node.rank}"))
    others.pop(hostname, None)
    return replace(node, hostname=hostname, fqdn=full[0], names=tuple(others))
