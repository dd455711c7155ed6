"""The paths of a submitter's machine in a spec, which mean nothing on another machine. Pure."""

from __future__ import annotations

from muster.errors import Problem
from muster.spec.models import JobSpec


def local_paths(spec: JobSpec) -> list[Problem]:
    """A problem for each path of the submitter's machine in a spec."""
    return []
