"""Rules for what a job asks of Kubernetes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.decode import given_settings
from muster.spec.models import JobSpec


def kubernetes_problems(spec: JobSpec) -> Iterator[Problem]:
    """What is wrong with `kubernetes` of a job and of its groups."""
    levels = [("kubernetes", spec.kubernetes)]
    levels += [
        (f"node_groups[{number}].kubernetes", group.kubernetes)
        for number, group in enumerate(spec.node_groups)
    ]
    for path, given in levels:
        if given is not None:
            # few jobs have any
            from muster.spec.formats.jobset.cluster_settings import setting_problems

            yield from setting_problems(given_settings(given), path)
