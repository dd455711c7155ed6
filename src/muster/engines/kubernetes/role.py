"""What Muster may do in a namespace: the Role that an administrator applies, from its calls. Pure.

It has no right on Secrets, unless pods dial: then it creates one for each JobSet. The API server
cannot limit creation by name, so the Role lets it create any, and read or list none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from muster.engines.grantees import Grantees
from muster.engines.kubernetes.kinds import METRICS_API_GROUP
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import (
    JOBSET_API_GROUP,
    KUEUE_API_GROUP,
    Version,
    Versions,
)

_RBAC = "rbac.authorization.k8s.io"
#: The name of the Role and of the RoleBinding.
NAME = "muster"


class Rule(Struct, frozen=True):
    """Verbs for resources of one group of the API."""

    #: "" for the core group.
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: What Muster needs it for, for people.
    why: str
    #: Whether runs do without it.
    is_optional: bool = False


_WATCH = ("list", "watch")
#: What is applied may have to be created.
_APPLY = ("create", "patch")


def rules(profile: KubernetesProfile, versions: Versions) -> list[Rule]:
    """All that an engine uses in its namespace."""
    return list(_rules(profile, versions))


def _rules(profile: KubernetesProfile, versions: Versions) -> Iterator[Rule]:
    if versions.jobset is not None:
        verbs = ("get", *_WATCH, *_APPLY, "delete")
        yield Rule(JOBSET_API_GROUP, ("jobsets",), verbs, "run jobs")
        why = "show what pods of JobSets use that run as they are"
        yield Rule(METRICS_API_GROUP, ("pods",), ("list",), why, is_optional=True)
    else:
        yield Rule("batch", ("jobs",), (*_WATCH, *_APPLY), "run jobs")
        yield Rule("", ("services",), ("list", *_APPLY, "delete"), "give pods names")
    yield Rule("", ("pods",), (*_WATCH, "delete"), "see what becomes of nodes, and replace pods")
    yield Rule("", ("pods/log",), ("get",), "say why a pod has failed")
    yield Rule("", ("events",), ("list",), "say why pods are not created")
    yield Rule("", ("configmaps",), _APPLY, "give pods the node program")
    if profile.contact == "exec":
        yield Rule("", ("pods/exec",), ("get", "create"), "reach nodes")
    else:
        yield Rule("", ("secrets",), _APPLY, "give each pod what it proves itself with")
    if profile.claim is not None:
        why = "check the claim of the profile"
        yield Rule("", ("persistentvolumeclaims",), ("get",), why)
    if versions.kueue is not None:
        yield Rule(KUEUE_API_GROUP, ("workloads",), _WATCH, "say why a run waits")
        yield Rule(KUEUE_API_GROUP, ("localqueues",), ("get",), "check queues before a run")


#: The first version whose exec streams need the right to create them as well.
_CREATES_EXEC: Version = (1, 35)


def rights_to_follow(
    profile: KubernetesProfile, versions: Versions
) -> tuple[Sequence[tuple[str, str, str]], Sequence[tuple[str, str, str]]]:
    """Rights without which a run would hold pods that it does not see, or cannot reach: those that
    it needs, and those that only a newer cluster needs."""
    needed = [("list", "", "pods"), ("watch", "", "pods")]
    if profile.contact != "exec":
        return needed, []
    needed.append(("get", "", "pods/exec"))
    create = ("create", "", "pods/exec")
    return ([*needed, create], []) if versions.kubernetes >= _CREATES_EXEC else (needed, [create])


def role(
    profile: KubernetesProfile, versions: Versions, namespace: str | None = None
) -> dict[str, Any]:
    """The Role. namespace: None: that of whoever applies it."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _metadata(namespace),
        "rules": [
            {"apiGroups": [one.group], "resources": [*one.resources], "verbs": [*one.verbs]}
            for one in rules(profile, versions)
        ],
    }


def role_binding(grantees: Grantees, namespace: str | None = None) -> dict[str, Any]:
    """What grants the Role to some. namespace: of the Role, and of service accounts that are named
    without one."""
    subjects = [_subject("User", name) for name in grantees.users]
    subjects += [_subject("Group", name) for name in grantees.groups]
    for one in grantees.service_accounts:
        where, _, name = one.rpartition(":")
        account = {"kind": "ServiceAccount", "name": name}
        if where or namespace:
            account["namespace"] = where or str(namespace)
        subjects.append(account)
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": NAME},
        "subjects": subjects,
    }


def _subject(kind: str, name: str) -> dict[str, str]:
    return {"kind": kind, "name": name, "apiGroup": _RBAC}


def _metadata(namespace: str | None) -> dict[str, str]:
    return {"name": NAME} if namespace is None else {"name": NAME, "namespace": namespace}


def needed_rights(
    profile: KubernetesProfile, versions: Versions, *, optional: bool = False
) -> Sequence[tuple[str, str, str]]:
    """Verb, group and resource of each right in the Role that runs cannot do without. optional: of
    the others instead."""
    return [
        (verb, one.group, resource)
        for one in rules(profile, versions)
        if one.is_optional == optional
        for resource in one.resources
        for verb in one.verbs
    ]
