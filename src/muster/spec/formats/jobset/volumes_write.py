"""Write mounts as volumes, and the claims that a JobSet creates for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from muster.spec.formats.jobset.config_write import WrittenObjects
from muster.spec.formats.jobset.environment_write import WHOLE_FIELDS
from muster.spec.formats.jobset.name_rules import kubernetes_label
from muster.spec.formats.jobset.volumes_read import INCARNATION, KEPT, NODE, OWN_TMP, RUN
from muster.spec.formats.notes import Loss
from muster.spec.models import ExtraContainer, NodeGroup
from muster.spec.placeholders import fill, pieces, placeholders

_EXPORT = re.compile(r"nfs://([^/]+)(/.*)|([^/:]+):(/.*)")
#: A spec has neither the size of a claim nor its access modes.
_CLAIM = {
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "10Gi"}},
}


class Volumes:
    """The volumes of all groups. A claim has the same name in all of them."""

    def __init__(self, jobset: str, groups: Sequence[NodeGroup], objects: WrittenObjects) -> None:
        self._jobset, self._objects = jobset, objects
        self._claims: dict[str, str] = {}
        self.losses: list[Loss] = []
        every: list[NodeGroup | ExtraContainer] = [*groups]
        every += (one for group in groups for one in group.extra_containers)
        for mount in (mount for one in every for mount in one.mounts):
            name = None if mount.source is None else self._claim_template(mount.source)
            if name is not None and mount.source is not None and mount.source not in self._claims:
                self._claims[mount.source] = _free(name, self._claims.values())

    def of_group(
        self,
        group: NodeGroup,
        path: str,
        *,
        kept: bool,
        patched: Collection[str] = (),
        taken: Collection[str] = (),
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The group's `volumeMounts`, and the `volumes` of its pods. kept: whether a restart keeps
        the pod's folders. patched, taken: where a patch of the pods mounts volumes, and the names
        of those."""
        mounts: list[dict[str, Any]] = []
        volumes: dict[str, dict[str, Any]] = {}
        for number, mount in enumerate(group.mounts):
            if mount == OWN_TMP or mount.destination in patched:
                continue
            where = f"{path}.mounts[{number}]"
            # mounts of the same files are of one volume
            source = mount.source or f"files:{sorted(mount.files)}"
            name = self._claims.get(source)
            if mount.source is None and source not in volumes:
                others = {*taken, *self._claims.values(), *(v["name"] for v in volumes.values())}
                name = _free(f"{group.name}-{mount.destination.rpartition('/')[2]}", others)
                fields, lost = self._objects.volume(mount, name, WHOLE_FIELDS, where)
                volumes[source] = {"name": name, **fields}
                self.losses += lost
            if name is None and source not in volumes:
                kind = _kind(source)
                if kind is None:
                    why = f"{source} is left out; a volume cannot be a URL"
                    self.losses.append(Loss(f"{path}.mounts[{number}]", why))
                    continue
                others = {*taken, *self._claims.values(), *(v["name"] for v in volumes.values())}
                volumes[source] = {"name": _free(_volume_name(source), others), **kind}
            name = name or volumes[source]["name"]
            if source.startswith((NODE, RUN)) and not source.endswith(f"/{name}"):
                why = f"is named {name} in the JobSet"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            if source.startswith(INCARNATION) and kept:
                why = "is not emptied there when a program restarts"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            if source.startswith(NODE) and not kept:
                why = "is empty there when a program restarts, in a new pod"
                self.losses.append(Loss(f"{path}.mounts[{number}].source", why))
            seen: dict[str, Any] = {"name": name, "mountPath": mount.destination}
            if mount.sub_path is not None:
                part = _sub_path(mount.sub_path, group)
                if part is None:
                    why = "is left out: pods have no variable with this value"
                    self.losses.append(Loss(f"{where}.sub_path", why))
                    continue
                seen |= part
            mounts.append(seen | ({"readOnly": True} if mount.read_only else {}))
        return mounts, list(volumes.values())

    def _claim_template(self, source: str) -> str | None:
        """The claim template of a source, if the JobSet creates the claim."""
        if source.startswith(RUN):
            return source.removeprefix(RUN)
        name = source.removeprefix(KEPT)
        own = name.removesuffix(f"-{self._jobset}")
        # a name that a template cannot have is that of an existing claim
        return own if own != name != source and own == kubernetes_label(own) else None

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


def _sub_path(template: str, group: NodeGroup) -> dict[str, str] | None:
    """The fields of a mount for a part of a volume; None if no variable has what is in it."""
    if not placeholders(template):
        return {"subPath": fill(template, str)}
    known = {given: name for name, given in group.node_env.items()}
    parts = [
        text if name is None else f"$({known[text]})" if text in known else None
        for text, name in pieces(template)
    ]
    found = [part for part in parts if part is not None]
    return {"subPathExpr": "".join(found)} if len(found) == len(parts) else None


def _kind(source: str) -> dict[str, Any] | None:
    """The fields of a volume for a mount's source; None if no volume can have it."""
    if source.startswith((NODE, INCARNATION)):
        return {"emptyDir": {}}
    if source.startswith(KEPT):
        return {"persistentVolumeClaim": {"claimName": source.removeprefix(KEPT)}}
    if "://" in source and not source.startswith("nfs://"):
        return None
    if match := _EXPORT.fullmatch(source):
        return {"nfs": {"server": match[1] or match[3], "path": match[2] or match[4]}}
    return {"hostPath": {"path": source}}


def _volume_name(source: str) -> str:
    for start in (NODE, INCARNATION, KEPT):
        if source.startswith(start):
            return source.removeprefix(start)
    return source


def _free(preferred: str, taken: Collection[str]) -> str:
    """A label like the preferred one that is not taken."""
    name = kubernetes_label(preferred)
    number = 2
    while name in taken:
        name, number = f"{kubernetes_label(preferred, 58)}-{number}", number + 1
    return name
