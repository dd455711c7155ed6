"""Where a job names its nodes, in whose pods the names may not resolve. Pure.

The node program adds the names to the hosts file of its pod, which only root may write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.engines.kubernetes.plan_problems import containers_of
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.plan.model import GroupPlan, RunPlan
from muster.plan.names import node_names, service_names
from muster.spec.formats.jobset.cluster_settings import merged
from muster.spec.formats.jobset.own_parts import NODE

_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_ROOT = ("0", "root")


def notes(plan: RunPlan, profile: KubernetesProfile) -> Iterator[str]:
    """A note for each group whose programs are told names, and may not be root."""
    names = {name for node in plan.nodes for name in node_names(node)} | {*service_names(plan)}
    for group in plan.groups:
        is_root = _is_root(group, profile)
        if is_root or (found := _first_name(group, names)) is None:
            continue
        path, name = found
        text = f"{path} of group {group.name} names a node, {name}"
        if is_root is None:
            yield f"{text}: that resolves if the user of its image is root"
        else:
            yield (
                f"{text}: that does not resolve, as its programs are not root; use ${{address}} of "
                "the node itself, or framework generic with $MUSTER_MAIN_ADDRESS"
            )


def _first_name(group: GroupPlan, names: set[str]) -> tuple[str, str] | None:
    """Where a text of the job has the name of a node, and the name."""
    texts = [
        *((f"env.{name}", text) for name, text in group.env.items()),
        *((f"node_env.{name}", text) for name, text in group.node_env.items()),
        *(("command", word) for word in group.command or ()),
        *(("args", word) for word in group.args),
        *(("node_args", word) for word in group.node_args),
    ]
    return next(
        ((path, word) for path, text in texts for word in _WORD.findall(text) if word in names),
        None,
    )


def _is_root(group: GroupPlan, profile: KubernetesProfile) -> bool | None:
    """Whether the programs of a group run as root; None: that depends on their image."""
    pod = merged(profile.pods, group.kubernetes).get("pod", {})
    own = [one for one in containers_of(pod) if one.get("name") == NODE]
    levels = [*own, pod.get("spec") or {}]
    security = [one.get("securityContext") or {} for one in levels]
    if (user := group.container.user) is not None:
        return user.partition(":")[0] in _ROOT
    numbers = [one["runAsUser"] for one in security if one.get("runAsUser") is not None]
    if numbers:
        return bool(numbers[0] == 0)
    is_never = group.container.non_root or any(one.get("runAsNonRoot") for one in security)
    return False if is_never else None
