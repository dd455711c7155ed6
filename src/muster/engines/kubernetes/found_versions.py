"""The versions that a cluster had when they were last read: `muster explain` calls no cluster, and
shows what would be applied there."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from muster.engines.kubernetes.access import server_of
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import CannotCall
from muster.engines.kubernetes.versions import Versions
from muster.engines.remote.record import read_record, write_record
from muster.storage.home import Home


def _file(home: Home, server: str) -> Path:
    """server: the URL of the API server. A profile may lead to another one later."""
    return home.root / "kubernetes" / f"{hashlib.sha256(server.encode()).hexdigest()[:16]}.json"


def found_versions(home: Home, profile: KubernetesProfile) -> Versions | None:
    """The versions of the cluster to which a profile leads now; None if they are not known."""
    with contextlib.suppress(CannotCall):
        return _read(home, server_of(profile, {}))
    return None


def _read(home: Home, server: str) -> Versions | None:
    with contextlib.suppress(OSError):
        return read_record(_file(home, server), Versions)
    return None


def record_versions(home: Home, server: str, versions: Versions) -> None:
    """Record what a cluster has said. A folder that cannot be written is no fault."""
    path = _file(home, server)
    if _read(home, server) == versions:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_record(path, versions)
