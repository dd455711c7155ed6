"""The Role of a cluster's users as text, for `kubectl apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from muster.engines.grantees import Grantees
from muster.engines.kubernetes.cluster import RETRY_BRIEFLY, CannotCall, Cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.role import role, role_binding
from muster.engines.kubernetes.versions import Versions


def rights(profile: KubernetesProfile, grantees: Grantees) -> str:
    """The Role for what the cluster has and, if anybody gets it, a RoleBinding: YAML. Of a cluster
    that cannot be reached, JobSet and Kueue are taken to be installed."""
    cluster, note, versions = Cluster(profile, retry_for=RETRY_BRIEFLY), "", Versions()
    namespace = profile.namespace
    try:
        namespace = cluster.connection.namespace  # as it is named in a file
        versions = cluster.versions()
    except CannotCall as error:
        why = " ".join(str(error).split())
        note = f"# For a cluster with JobSet and Kueue, as this one did not answer: {why}\n"
    finally:
        cluster.close()
    made = [role(profile, versions, namespace)]
    if grantees != Grantees():
        made.append(role_binding(grantees, namespace))
    return note + "---\n".join(map(_text, made))


def _text(made: Mapping[str, Any]) -> str:
    """As YAML, with lists in a line each."""
    return yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=1000)
