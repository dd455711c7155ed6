"""All that is applied for an allocation: for the engine, and for people. Pure.

What people are shown is made by the same code as what is applied. Only what is made for each run,
or by the cluster, is shown as `***`: keys, the node program, and the uid of the owner.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from muster.engines.kubernetes.layout import layout
from muster.engines.kubernetes.manifest import manifest
from muster.engines.kubernetes.names import jobset_name
from muster.engines.kubernetes.native_restarts import restarts_left
from muster.engines.kubernetes.objects import config_map, description, secret
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.versions import Versions
from muster.engines.remote.hosts import first_parts
from muster.engines.remote.server_settings import server_settings
from muster.plan.model import RunPlan
from muster.secrets import HIDDEN
from muster.spec.formats.jobset.as_is import images as images_in

#: Kinds of objects that pods mount.
MOUNTED_KINDS = frozenset({"Secret", "ConfigMap"})


class Contents(Struct, frozen=True):
    """What pods mount, and is made for each run."""

    #: The node program.
    program: bytes
    #: Where and how pods dial; None: they are dialed.
    dialing: PodDialing | None = None


class PodDialing(Struct, frozen=True):
    """How pods dial their supervisor."""

    #: See `node.serve.Supervisor`.
    supervisor: Mapping[str, str]
    #: The key of a slot, see `node.greeting`.
    key_of: Callable[[int], bytes]


#: For people, who see none of it.
_UNKNOWN = PodDialing({"address": HIDDEN, "authority": HIDDEN, "token_file": ""}, lambda _: b"")


def objects(
    plan: RunPlan,
    profile: KubernetesProfile,
    versions: Versions,
    one: Allocation,
    contents: Contents,
) -> list[dict[str, Any]]:
    """All objects of an allocation, in the order in which they are applied. The first owns the
    others, see `owned`."""
    name = jobset_name(plan, one.number)
    first, *others = manifest(
        *(plan, profile, versions, one.made_for, one.number, one.avoid),
        max_restarts=one.max_restarts,
    )
    every, dialing = layout(plan, one.made_for), contents.dialing
    settings = _settings(plan, profile, versions, one, contents)
    described = description(plan, profile, every, settings)
    made = [first]
    if dialing is not None:
        made.append(secret(plan, profile, name, every, dialing.key_of))
    made.append(config_map(plan, profile, name, contents.program, described))
    return [*made, *others]


def _settings(
    plan: RunPlan,
    profile: KubernetesProfile,
    versions: Versions,
    one: Allocation,
    contents: Contents,
) -> dict[str, Any]:
    """Of all node servers (`node.serve.Settings`)."""
    more: dict[str, Any] = {"contained": True}
    if contents.dialing is None:
        more["hosted"] = True
    else:
        more["supervisor"] = dict(contents.dialing.supervisor)
    if one.max_restarts and versions.jobset is not None:
        more["decision"] = profile.decision_window
    return server_settings(plan, one.made_for[0], **more)


def owned(part: Mapping[str, Any], owner: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """An object that is deleted with its owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid,
    }
    return {**part, "metadata": {**part["metadata"], "ownerReferences": [reference]}}


# --- for people


def shown(plan: RunPlan, profile: KubernetesProfile, versions: Versions) -> list[dict[str, Any]]:
    """What is applied when a run starts. Of an array, that for its first replica: the others that
    run at the same time have the same, with other numbers."""
    made = []
    for first, *others in _first_objects(plan, profile, versions):
        made += [first, *(owned(part, first, HIDDEN) for part in others)]
    return [hide(part) for part in made]


def validated(
    plan: RunPlan, profile: KubernetesProfile, versions: Versions
) -> Iterator[dict[str, Any]]:
    """The same as a cluster accepts it: without what is hidden there, and without owners, which do
    not exist yet."""
    for made in _first_objects(plan, profile, versions):
        yield from made


def images(plan: RunPlan, profile: KubernetesProfile, versions: Versions) -> list[str]:
    """The images of all containers of a run, and of volumes, each once."""
    made = manifest(plan, profile, versions)
    return list(dict.fromkeys(image for one in made for image in images_in(one)))


def _first_objects(
    plan: RunPlan, profile: KubernetesProfile, versions: Versions
) -> Iterator[list[dict[str, Any]]]:
    """Those of each allocation with which a run starts."""
    contents = Contents(b"", _UNKNOWN if profile.contact == "dial" else None)
    for one in _first_allocations(plan, profile):
        yield objects(plan, profile, versions, one, contents)


def _first_allocations(plan: RunPlan, profile: KubernetesProfile) -> Iterator[Allocation]:
    """Those of a run that starts, but for an array only the first."""
    initial = plan.policy.first_nodes()
    arrays, number = set[str](), 0
    for part in first_parts(plan):
        group = plan.group_for(plan.nodes[part[0]])
        if group.is_array:
            slots = part
        else:
            slots = [s for s in part if not initial[plan.nodes[s].rank].scaled_down]
        if slots and group.name not in arrays:
            yield _allocation(number, slots, restarts_left(plan, profile))
        if group.is_array:
            arrays.add(group.name)
        number += bool(slots)


def _allocation(number: int, slots: Sequence[int], most: int) -> Allocation:
    return Allocation(number, tuple(slots), tuple(slots), max_restarts=most)


def hide(part: Mapping[str, Any]) -> dict[str, Any]:
    """An object as people see it."""
    made = dict(part)
    if references := part["metadata"].get("ownerReferences"):
        hidden = [{**one, "uid": HIDDEN} for one in references]
        made["metadata"] = {**part["metadata"], "ownerReferences": hidden}
    if part["kind"] == "Secret":
        made["data"] = dict.fromkeys(part["data"], HIDDEN)
    elif part["kind"] == "ConfigMap":
        made["data"] = {name: _described(text) for name, text in part["data"].items()}
        made["binaryData"] = dict.fromkeys(part["binaryData"], HIDDEN)
    return made


def _described(text: str) -> str:
    """The description without what is made for each run."""
    described = json.loads(text)
    if (supervisor := described["settings"].get("supervisor")) is not None:
        supervisor |= {"address": HIDDEN, "authority": HIDDEN}
    return json.dumps(described, sort_keys=True)
