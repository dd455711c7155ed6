"""Pod Security Admission, of its levels the strictest (Kubernetes: Pod Security Standards)."""

from __future__ import annotations

from collections.abc import Iterator

from support.kube.objects import ApiError, Obj, Resource, labels_of
from support.kube.storage import Storage

#: A label of namespaces.
ENFORCE = "pod-security.kubernetes.io/enforce"
RESTRICTED = "restricted"
_VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"),
    *("projected", "secret"),
)
_PROFILES = ("RuntimeDefault", "Localhost")


class PodSecurity:
    """Refuses pods in namespaces with the label. Other levels are not played."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def admit(self, resource: Resource, new: Obj, old: Obj | None, subresource: str) -> None:
        """Raises ApiError."""
        if resource.plural != "pods" or old is not None or subresource:
            return
        namespace = self._storage.find("namespaces", "", new["metadata"]["namespace"])
        if namespace is None or labels_of(namespace).get(ENFORCE) != RESTRICTED:
            return
        if found := ", ".join(violations(new["spec"])):
            name = new["metadata"]["name"]
            text = (
                f'pods "{name}" is forbidden: violates PodSecurity "{RESTRICTED}:latest": {found}'
            )
            raise ApiError(403, "Forbidden", text, {"name": name, "kind": "pods"})


def violations(spec: Obj) -> Iterator[str]:
    """Why the level `restricted` refuses a pod, in the words of Kubernetes."""
    of_pod = spec.get("securityContext") or {}
    for one in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(one):
            yield f"host namespaces ({one}=true)"
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        own = container.get("securityContext") or {}
        name = f'container "{container["name"]}"'
        if own.get("privileged"):
            yield f"privileged ({name} must not set securityContext.privileged=true)"
        if own.get("allowPrivilegeEscalation") is not False:
            text = f"{name} must set securityContext.allowPrivilegeEscalation=false"
            yield f"allowPrivilegeEscalation != false ({text})"
        capabilities = own.get("capabilities") or {}
        if "ALL" not in capabilities.get("drop", ()):
            text = f'{name} must set securityContext.capabilities.drop=["ALL"]'
            yield f"unrestricted capabilities ({text})"
        if set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"}:
            yield f"unrestricted capabilities ({name} must not add capabilities)"
        if not own.get("runAsNonRoot", of_pod.get("runAsNonRoot")):
            text = f"pod or {name} must set securityContext.runAsNonRoot=true"
            yield f"runAsNonRoot != true ({text})"
        if own.get("runAsUser", of_pod.get("runAsUser")) == 0:
            yield f"runAsUser=0 (pod or {name} must not set runAsUser=0)"
        profile = own.get("seccompProfile") or of_pod.get("seccompProfile") or {}
        if profile.get("type") not in _PROFILES:
            text = f"pod or {name} must set securityContext.seccompProfile.type to "
            yield f'seccompProfile ({text}"RuntimeDefault" or "Localhost")'
    for volume in spec.get("volumes", ()):
        for kind in volume.keys() - {"name", *_VOLUMES}:
            text = f'volume "{volume["name"]}" uses restricted volume type "{kind}"'
            yield f"restricted volume types ({text})"
