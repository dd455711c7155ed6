"""Rules of jobs that have a JobSet of the user's. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.models import JobSpec


def workload_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """What a job says besides its JobSet, which is run as it is."""
    if spec.workload is not None:
        from muster.spec.formats.jobset.as_is import changed_fields  # few jobs have one

        yield from changed_fields(spec)
