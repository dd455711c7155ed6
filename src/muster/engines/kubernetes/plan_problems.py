"""Why a plan cannot run in a cluster. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec.structs import asdict

from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.names import longest_pod_name
from muster.engines.kubernetes.pod_placeholders import PodPlaceholders, templates_of
from muster.engines.kubernetes.pods import claim_of, is_of_pod, patched_paths
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.errors import Problem
from muster.plan.model import ExtraContainerPlan, GroupPlan, MountPlan, RunPlan
from muster.spec.formats.jobset.name_rules import MAX_LENGTH
from muster.spec.formats.jobset.own_parts import NODE
from muster.spec.placeholders import OF_SECRET
from muster.spec.quantities import format_size
from muster.spec.wording import say
from muster.storage.mount_sources import named_source

_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
#: Names of Kueue's objects are labels' texts as well.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


def problems(plan: RunPlan, profile: KubernetesProfile) -> Iterator[Problem]:
    """Their paths are those of the spec in normal form."""
    if plan.network == "isolated":
        text = "pods are on the network of the cluster"
        yield Problem("network", text, "use cluster, and a NetworkPolicy of the cluster")
    if plan.kueue is not None:
        for field, value in asdict(plan.kueue).items():
            if value is not None and not _LABEL.fullmatch(value):
                hint = "lower-case letters, digits, - and ., at most 63"
                yield Problem(f"kueue.{field}", f"must name an object, not {say(value)}", hint)
    name = longest_pod_name(plan)
    if len(name) > MAX_LENGTH:
        longest = max(plan.groups, key=lambda group: len(group.name))
        text = f"its pod {name} would have a name of {len(name)} characters"
        hint = f"{MAX_LENGTH} are allowed: shorten the name of the group"
        yield Problem(f"node_groups[{longest.name}].name", text, hint)
    if (problem := _code_problem(plan, profile)) is not None:
        yield problem
    for group in plan.groups:
        place = f"node_groups[{group.name}]"
        if group.resources.shape is not None:
            text = "Kubernetes has no shapes"
            hint = "use resources, and kubernetes.node_selector for the kind of machine"
            yield Problem(f"{place}.shape", text, hint)
        for number, one in enumerate(group.extra_containers):
            where = f"{place}.extra_containers[{number}]"
            if one.name == NODE:
                text = "is the name of the node's own container"
                yield Problem(f"{where}.name", text, "take another one")
            patched = patched_paths(group, profile, one.name)
            yield from _mount_problems(one, where, patched)
        yield from _claim_problems(group, place)
    yield from _shared_problems(plan, profile)
    for job in layout(plan, range(len(plan.nodes))):
        group = plan.group(job.group)
        yield from _placeholder_problems(group, PodPlaceholders(plan, job))


def _mount_problems(
    one: ExtraContainerPlan, path: str, patched: Collection[str]
) -> Iterator[Problem]:
    """What the node program brings into its own container only. patched: paths at which the patch
    of the pod mounts a volume in this one."""
    for number, mount in enumerate(one.mounts):
        if mount.kind in ("nfs", "volume") or is_of_pod(mount) or mount.path in patched:
            continue
        what = "given files" if mount.kind == "files" else mount.source
        text = f"only the container of the program gets {what}"
        if mount.kind == "files":
            hint = "put them into the image, or mount a ConfigMap with kubernetes.pod"
        else:
            hint = "mount nfs://HOST/PATH, scratch:node/NAME, or a claim with kubernetes.pod"
        yield Problem(f"{path}.mounts[{number}]", text, hint)


def _shared_problems(plan: RunPlan, profile: KubernetesProfile) -> Iterator[Problem]:
    """Directories by which a group passes files on to another, which pods cannot without a claim.
    Nodes of one group may do with one each, which is noted."""
    own = {group.name: _run_sources(group, profile) for group in plan.groups}
    of_groups = Counter(source for sources in own.values() for source in sources.values())
    for group in plan.groups:
        for number, source in own[group.name].items():
            if of_groups[source] > 1:
                others = " and ".join(name for name in own if source in own[name].values())
                text = f"pods of {others} cannot share {source}"
                hint = "create a PersistentVolumeClaim, and mount it with volume:CLAIM"
                yield Problem(f"node_groups[{group.name}].mounts[{number}].source", text, hint)


def _run_sources(group: GroupPlan, profile: KubernetesProfile) -> dict[int, str]:
    """Number of a mount -> its directory of the run, each once, unless a patch mounts a volume."""
    patched = patched_paths(group, profile, NODE)
    found = {
        mount.source: number
        for number, mount in reversed(list(enumerate(group.mounts)))
        if _is_of_run(mount) and mount.path not in patched
    }
    return {number: source for source, number in found.items()}


def _is_of_run(mount: MountPlan) -> bool:
    return mount.kind == "scratch" and named_source(mount.source).of == "run"


def _claim_problems(group: GroupPlan, path: str) -> Iterator[Problem]:
    """Volumes are claims here, whose names have fewer characters than those of folders."""
    levels = [(path, group.mounts)]
    levels += [
        (f"{path}.extra_containers[{number}]", one.mounts)
        for number, one in enumerate(group.extra_containers)
    ]
    for where, mounts in levels:
        for number, mount in enumerate(mounts):
            if mount.kind == "volume" and not _CLAIM.fullmatch(claim_of(mount.source)):
                text = f"{mount.source} must name a PersistentVolumeClaim of the namespace"
                hint = "lower-case letters, digits, - and ."
                yield Problem(f"{where}.mounts[{number}].source", text, hint)


def _placeholder_problems(group: GroupPlan, known: PodPlaceholders) -> Iterator[Problem]:
    for one in templates_of(group):
        for name in known.unknown(one.text):
            text = f"${{{name}}} is not known when the pod is made"
            if name.startswith(OF_SECRET):
                hint = "refer to a Secret of the cluster, with a patch in kubernetes.pod"
            else:
                hint = "use ${index}, ${group}, ${address}, ${run.id} or ${run.name}"
            yield Problem(f"node_groups[{group.name}].{one.path}", text, hint)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def containers_of(patch: Any) -> list[Mapping[str, Any]]:
    """The containers in a patch of a pod template, as far as they are any."""
    found = _table(_table(patch).get("spec")).get("containers")
    return [_table(one) for one in found] if isinstance(found, (list, tuple)) else []


def _code_problem(plan: RunPlan, profile: KubernetesProfile) -> Problem | None:
    """Code that is too large for the API server, which all users of the cluster need."""
    code = plan.artifact
    if code is None or profile.contact != "exec" or profile.claim is not None:
        return None
    if code.size <= profile.code_limit:
        return None
    size, limit = format_size(code.size), format_size(profile.code_limit)
    text = f"has {size}; at most {limit} are sent to each pod through the API server"
    hint = (
        "leave large files out (.musterignore), put them into the image or a mount, or set `claim`,"
        " `contact` or `code_limit` in the engine's profile"
    )
    return Problem("artifact", text, hint)
