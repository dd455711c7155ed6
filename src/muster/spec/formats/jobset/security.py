"""Read how containers are made, security contexts above all, as `Container` of a spec, and write
it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from muster.spec.formats.jobset import kubernetes as k8s
from muster.spec.formats.jobset.kubernetes import PodSecurityContext
from muster.spec.formats.notes import Loss
from muster.spec.models import Container

_DEFAULT = Container()
#: Kubernetes: imagePullPolicy.
_PULL: dict[str, Literal["missing", "always", "never"]] = {
    "Always": "always",
    "IfNotPresent": "missing",
    "Never": "never",
}
#: Kubernetes: seccompProfile.type.
_SECCOMP: dict[str, Literal["default", "unconfined"]] = {
    "RuntimeDefault": "default",
    "Unconfined": "unconfined",
}
#: What a manifest says.
_WRITTEN = frozenset(
    (
        *("pull", "user", "groups", "non_root", "cap_add", "cap_drop", "privileged"),
        *("read_only", "no_new_privileges", "seccomp", "shm_size"),
    )
)


def container_of(pod: PodSecurityContext, container: k8s.Container) -> Container | None:
    """How a container is made by its context and its pod's; None: as without any. Kubernetes: the
    container's has precedence."""
    own = container.security_context
    user = pod.run_as_user if own.run_as_user is None else own.run_as_user
    group = pod.run_as_group if own.run_as_group is None else own.run_as_group
    non_root = pod.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    profile = own.seccomp_profile or pod.seccomp_profile
    groups = [*pod.supplemental_groups, *(() if pod.fs_group is None else (pod.fs_group,))]
    made = Container(
        pull=_PULL.get(container.image_pull_policy),
        user=_user(user, group),
        groups=tuple(dict.fromkeys(groups)),
        non_root=bool(non_root),
        cap_add=tuple(map(_without_prefix, own.capabilities.add)),
        cap_drop=tuple(map(_without_prefix, own.capabilities.drop)),
        privileged=own.privileged,
        read_only=own.read_only_root_filesystem,
        no_new_privileges=not own.allow_privilege_escalation,
        seccomp=None if profile is None else _SECCOMP.get(profile.type, "default"),
    )
    return None if made == _DEFAULT else made


def _user(user: int | None, group: int | None) -> str | None:
    if user is None and group is None:
        return None
    # Kubernetes: a group needs a user, if only the image's, which is root unless it says otherwise
    return f"{user or 0}" if group is None else f"{user or 0}:{group}"


def _without_prefix(name: str) -> str:
    return name.upper().removeprefix("CAP_")


def write_security(container: Container | None, path: str) -> tuple[dict[str, Any], list[Loss]]:
    """The security context of a container, and what it cannot express. Groups are the pod's."""
    given = container or _DEFAULT
    losses = list(_losses(given, path))
    user, _, group = (given.user or "").partition(":")
    made: dict[str, Any] = {
        "runAsUser": int(user) if user.isdigit() else None,
        "runAsGroup": int(group) if group.isdigit() and user.isdigit() else None,
        "runAsNonRoot": given.non_root or None,
        "privileged": given.privileged or None,
        "readOnlyRootFilesystem": given.read_only or None,
        "allowPrivilegeEscalation": False if given.no_new_privileges else None,
        "seccompProfile": _seccomp_profile(given),
    }
    both = {"add": list(given.cap_add), "drop": list(given.cap_drop)}
    made["capabilities"] = {name: names for name, names in both.items() if names} or None
    return {name: value for name, value in made.items() if value is not None}, losses


def _seccomp_profile(given: Container) -> dict[str, str] | None:
    names = {value: name for name, value in _SECCOMP.items()}
    return None if given.seccomp is None else {"type": names[given.seccomp]}


def pull_policy(container: Container | None) -> str:
    """The imagePullPolicy; "": Kubernetes' default."""
    names = {value: name for name, value in _PULL.items()}
    return "" if container is None or container.pull is None else names[container.pull]


def _losses(given: Container, path: str) -> Iterator[Loss]:
    user = (given.user or "").split(":")
    if given.user is not None and not all(part.isdigit() for part in user):
        yield Loss(f"{path}.user", "is left out: Kubernetes requires a number")
    for name in Container.__struct_fields__:
        if name not in _WRITTEN and getattr(given, name) != getattr(_DEFAULT, name):
            yield Loss(f"{path}.{name}", "a JobSet has no such setting")
