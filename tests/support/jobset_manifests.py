"""Paths in the JobSet that the fixture `make` returns, and types of the fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from muster.spec.formats.documents import Manifest
from muster.spec.models import Mount, NodeGroup

#: Takes changes (path -> value; None removes the field), returns the manifest.
Make = Callable[[dict[str, Any]], Any]
Read = Callable[[Any], Manifest]
Problems = Callable[[Any], list[str]]

JOB = "spec.replicatedJobs[1].template.spec"
POD = f"{JOB}.template.spec"
MAIN = f"{POD}.containers[0]"

MAX = 2**31 - 1

#: Each container has its own /tmp, which is empty at each start.
OWN_TMP = Mount(source="scratch:incarnation/tmp", path="/tmp")


def workers(manifest: Manifest) -> NodeGroup:
    """The group of the second replicated Job, which is called workers."""
    return manifest.spec.node_groups[-1]
