"""What differs in a cluster from a run on one machine, for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.engines.kubernetes import named_nodes
from muster.engines.kubernetes.manifest import queue_labels
from muster.engines.kubernetes.plan_problems import containers_of
from muster.engines.kubernetes.pods import is_tmp, pod_mounts, shared_sources
from muster.engines.kubernetes.profile import DEFAULT_IMAGE, KubernetesProfile
from muster.engines.kubernetes.versions import Version, Versions
from muster.engines.remote import plan_checks
from muster.plan.model import GroupPlan, RunPlan
from muster.spec.formats.jobset.cluster_settings import QUEUE, merged
from muster.spec.formats.jobset.own_parts import NODE


def versions_text(found: Versions | None) -> str:
    """For which versions the manifest is that people see. found: those of the cluster, if it was
    ever asked."""
    known = found or Versions()
    jobset = "without JobSet" if known.jobset is None else f"with JobSet {_text(known.jobset)}"
    text = f"the manifest is written for Kubernetes {_text(known.kubernetes)} {jobset}"
    if found is None:
        return f"{text}: `muster engines check` asks the cluster for its versions"
    return text


def _text(version: Version) -> str:
    return ".".join(map(str, version))


def notes(
    plan: RunPlan, profile: KubernetesProfile, versions: Callable[[], Versions | None]
) -> list[str]:
    """What to know of a plan. versions: returns those of the cluster, if it was ever asked."""
    found = [*_of_queue(plan, profile, versions)]
    found += [
        note for group in plan.groups for note in _of_placement(group, plan, profile, versions)
    ]
    found += [note for group in plan.groups for note in _of_group(group, profile)]
    found += named_nodes.notes(plan, profile)
    mounted = {mount.source for group in plan.groups for mount in pod_mounts(group, profile)}
    # containers have a /tmp of their own, though one that is not emptied at restarts in place
    mounted |= {one.source for group in plan.groups for one in group.mounts if is_tmp(one)}
    return [*found, *plan_checks.notes(plan, mounted)]


def _origin(profile: KubernetesProfile) -> str:
    return "the default" if profile.image == DEFAULT_IMAGE else "that of the engine"


def _of_queue(
    plan: RunPlan, profile: KubernetesProfile, versions: Callable[[], Versions | None]
) -> Iterator[str]:
    queue = queue_labels(plan, profile).get(QUEUE)
    if queue is None and plan.kueue is not None and plan.kueue.priority is not None:
        yield "kueue.priority is not used: neither the job nor the engine names a queue"
    known = None if queue is None else versions()
    if known is not None and known.kueue is None:
        yield f"queue {queue} is not used: Kueue is not installed, and pods start at once"


def _of_placement(
    group: GroupPlan,
    plan: RunPlan,
    profile: KubernetesProfile,
    versions: Callable[[], Versions | None],
) -> Iterator[str]:
    """Settings that need something which the cluster, as far as is known, does not have."""
    settings, name = merged(profile.pods, group.kubernetes), f"group {group.name}"
    known = versions() if {"exclusive", "topology"} & settings.keys() else None
    if "exclusive" in settings and known is not None and known.jobset is None:
        yield f"{name}: kubernetes.exclusive is not used: JobSet is not installed"
    if "topology" not in settings:
        return
    if known is not None and known.kueue is None:
        yield f"{name}: kubernetes.topology is not used: Kueue is not installed"
    elif not queue_labels(plan, profile):
        text = "neither the job nor the engine names a queue of Kueue"
        yield f"{name}: kubernetes.topology is not used: {text}"


def _of_group(group: GroupPlan, profile: KubernetesProfile) -> Iterator[str]:
    name = f"group {group.name}"
    yield (
        f"{name}: its image has to have Python 3.9 or newer; its ENTRYPOINT does not run"
        if group.image is not None
        else f"{name}: names no image, so pods have {profile.image}, {_origin(profile)}"
    )
    known = {NODE, *(one.name for one in group.extra_containers)}
    for one in containers_of(merged(profile.pods, group.kubernetes).get("pod")):
        if one.get("name") not in known and one.get("$patch") != "delete":
            yield (
                f"{name}: kubernetes.pod adds container {one.get('name')} to its pods; that of "
                f"the node is named {NODE}"
            )
    if group.in_place is not None:
        yield f"{name}: starts in {group.in_place}, which its image has to have; --copy sends it"
    if group.container.ulimits:
        yield f"{name}: of container, ulimits are those of the cluster's machines"
    user = (group.container.user or "").split(":")
    if group.container.user is not None and not all(part.isdigit() for part in user):
        yield f"{name}: the user of its container is left out, as Kubernetes requires a number"
    if any(one.role == "init" for one in group.extra_containers):
        yield f"{name}: init containers run once for each pod, not at a restart in place"
    if shared := shared_sources(group):
        names = ", ".join(sorted(shared))
        yield f"{name}: {names}, which containers share, stays as it is at a restart in place"
