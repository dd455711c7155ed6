"""What nodes are called. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.plan.model import GroupPlan, NodePlan, RunPlan
from muster.spec.placeholders import as_label, expand_hostname


def named(plan: RunPlan, run_name: str) -> RunPlan:
    """The plan with the run's name, and nodes whose names tell of it."""
    label = as_label(run_name)
    nodes = tuple(
        _named(node, group.hostname, (label, number), plan)
        for group, number, node in _grouped(plan)
    )
    return replace(plan, run_name=run_name, nodes=nodes)


def _grouped(plan: RunPlan) -> Iterator[tuple[GroupPlan, int, NodePlan]]:
    """Each node with its group, and the number of its replica among those of all groups."""
    before = 0
    for group in plan.groups:
        for node in plan.nodes[group.first_rank : group.first_rank + group.size]:
            yield group, before + node.replica, node
        before += group.replicas


def service_names(plan: RunPlan) -> tuple[str, ...]:
    """What is the name of all nodes together (Kubernetes: of their headless service)."""
    if plan.subdomain is None or plan.namespace is None:
        return ()
    return _in_namespace(plan.subdomain, plan.namespace)


def _in_namespace(name: str, namespace: str) -> tuple[str, ...]:
    """A name as Kubernetes' resolvers know it, in full first."""
    own = f"{name}.{namespace}"
    return f"{own}.svc.cluster.local", f"{own}.svc", own, name


def _named(node: NodePlan, template: str, run: tuple[str, int], plan: RunPlan) -> NodePlan:
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
        full = _in_namespace(full[0], plan.namespace)
    fqdn = full[0]
    # the one that can be told from the rank alone, whatever the owner calls its nodes
    others = dict.fromkeys((*full, f"node-{node.rank}"))
    others.pop(hostname, None)
    return replace(node, hostname=hostname, fqdn=fqdn, names=tuple(others))
