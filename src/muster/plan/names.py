"""What nodes are called. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from muster.plan.model import NodePlan, RunPlan
from muster.spec.placeholders import as_label, expand_hostname


def named(plan: RunPlan, run_name: str) -> RunPlan:
    """The plan with the run's name, and nodes whose names tell of it."""
    templates = {group.name: group.hostname for group in plan.groups}
    label = as_label(run_name)
    nodes = tuple(_named(node, templates[node.group], label, plan.subdomain) for node in plan.nodes)
    return replace(plan, run_name=run_name, nodes=nodes)


def _named(node: NodePlan, template: str, run: str, subdomain: str | None) -> NodePlan:
    facts = {
        "rank": node.rank,
        "group": node.group,
        "replica": node.replica,
        "index": node.index,
        "run.name": run,
    }
    hostname = expand_hostname(template, facts)
    fqdn = f"{hostname}.{subdomain}" if subdomain else hostname
    # the one that can be told from the rank alone, whatever the owner calls its nodes
    others = dict.fromkeys((fqdn, f"node-{node.rank}"))
    others.pop(hostname, None)
    return replace(node, hostname=hostname, fqdn=fqdn, names=tuple(others))
