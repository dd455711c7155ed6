"""Mounts as volumes, and the claims a JobSet brings along for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from muster.spec.formats.losses import Loss
from muster.spec.formats.volumes import KEPT, LIFE, NODE, OWN_TMP, RUN
from muster.spec.models import Mount, NodeGroup

_EXPORT = re.compile(r"nfs://([^/]+)(/.*)|([^/:]+):(/.*)")
#: Nothing in a spec says how large a claim has to be, or who may use it at once.
_CLAIM = {
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "10Gi"}},
}


class Volumes:
    """The volumes of all groups: claims have one name everywhere, which no volume has."""

    def __init__(self, jobset: str, groups: Sequence[NodeGroup]) -> None:
        self._jobset = jobset
        self._claims: dict[str, str] = {}
        self.losses: list[Loss] = []
        for mount in (mount for group in groups for mount in group.mounts):
            name = self._claimed(mount.source)
            if name is not None and mount.source not in self._claims:
                self._claims[mount.source] = _free(name, self._claims.values())

    def of_group(
        self, group: NodeGroup, path: str, *, kept: bool
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The group's `volumeMounts`, and the `volumes` of its pods. kept: whether what a pod has
        is there still when its program starts again."""
        mounts: list[dict[str, Any]] = []
        volumes: dict[str, dict[str, Any]] = {}
        for number, mount in enumerate(group.mounts):
            if mount == OWN_TMP:
                continue
            name = self._claims.get(mount.source)
            if name is None and mount.source not in volumes:
                kind = _kind(mount.source)
                if kind is None:
                    why = f"{mount.source} is left out; no volume is a URL"
                    self.losses.append(Loss(f"{path}.mounts[{number}]", why))
                    continue
                taken = {*self._claims.values(), *(v["name"] for v in volumes.values())}
                volumes[mount.source] = {"name": _free(_called(mount), taken), **kind}
            name = name or volumes[mount.source]["name"]
            if mount.source.startswith((NODE, RUN)) and not mount.source.endswith(f"/{name}"):
                why = f"is called {name} there"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            if mount.source.startswith(LIFE) and kept:
                why = "is not emptied there when a program starts again"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            if mount.source.startswith(NODE) and not kept:
                why = "is empty there when a program starts again: that is another pod"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            seen: dict[str, Any] = {"name": name, "mountPath": mount.destination}
            mounts.append(seen | ({"readOnly": True} if mount.read_only else {}))
        return mounts, list(volumes.values())

    def _claimed(self, source: str) -> str | None:
        """The template a source is made from, if the JobSet brings it along."""
        if source.startswith(RUN):
            return source.removeprefix(RUN)
        name = source.removeprefix(KEPT)
        own = name.removesuffix(f"-{self._jobset}")
        # what cannot be a template's name keeps its own, as a claim that is there already
        return own if own != name != source and own == as_label(own) else None

    def claims(self) -> list[dict[str, Any]]:
        """`volumeClaimPolicies`."""
        made = []
        for start, policy in ((RUN, "Delete"), (KEPT, "Retain")):
            templates = [
                {"metadata": {"name": name}, "spec": _CLAIM}
                for source, name in self._claims.items()
                if source.startswith(start)
            ]
            if templates:
                made.append({"templates": templates, "retentionPolicy": {"whenDeleted": policy}})
        return made


def _kind(source: str) -> dict[str, Any] | None:
    """What a volume is; None if there is no such volume."""
    if source.startswith((NODE, LIFE)):
        return {"emptyDir": {}}
    if source.startswith(KEPT):
        return {"persistentVolumeClaim": {"claimName": source.removeprefix(KEPT)}}
    if "://" in source and not source.startswith("nfs://"):
        return None
    if match := _EXPORT.fullmatch(source):
        return {"nfs": {"server": match[1] or match[3], "path": match[2] or match[4]}}
    return {"hostPath": {"path": source}}


def _called(mount: Mount) -> str:
    for start in (NODE, LIFE, KEPT):
        if mount.source.startswith(start):
            return mount.source.removeprefix(start)
    return mount.source


def _free(wanted: str, taken: Collection[str]) -> str:
    """A label like that, which is not taken."""
    name = as_label(wanted)
    number = 2
    while name in taken:
        name, number = f"{as_label(wanted, 58)}-{number}", number + 1
    return name


def as_label(text: str, longest: int = 63) -> str:
    """A name for Kubernetes that is as like `text` as can be."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-")
    named = cleaned if cleaned[:1].isalpha() else f"v-{cleaned}"
    return named[:longest].rstrip("-")
