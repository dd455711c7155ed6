"""The versions that a cluster had when they were last read: `muster explain` calls no cluster, and
shows what would be applied there."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.versions import Versions
from muster.engines.remote.record import read_record, write_record
from muster.storage.home import Home


def _file(home: Home, profile: KubernetesProfile) -> Path:
    """By what says which cluster it is."""
    place = repr((profile.kubeconfig, profile.context))
    return home.root / "kubernetes" / f"{hashlib.sha256(place.encode()).hexdigest()[:16]}.json"


def found_versions(home: Home, profile: KubernetesProfile) -> Versions | None:
    """The versions; None if they are not known."""
    with contextlib.suppress(OSError):
        return read_record(_file(home, profile), Versions)
    return None


def record_versions(home: Home, profile: KubernetesProfile, versions: Versions) -> None:
    """Record what a cluster has said. A folder that cannot be written is no fault."""
    path = _file(home, profile)
    if found_versions(home, profile) == versions:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_record(path, versions)
