"""Rules between the fields that say where the code is. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import Problem
from muster.spec.models import JobSpec
from muster.spec.sources import is_notebook
from muster.spec.urls import without_credentials


def source_gaps(spec: JobSpec) -> Iterator[Problem]:
    """What is missing."""
    if spec.entrypoint is not None and spec.artifact is None and spec.git is None:
        hint = "give an artifact, or git"
        yield Problem("entrypoint", "there is no artifact to look for it in", hint)
    if spec.git is None or spec.entrypoint is not None or not needs_entrypoint(spec):
        return
    url = without_credentials(spec.git.url)
    yield Problem("entrypoint", f"{url} needs one", "say which file of the repository to run")


def needs_entrypoint(spec: JobSpec) -> bool:
    """Whether any node runs the code itself, and not a command beside it."""
    groups = spec.node_groups
    told = bool(groups) and all(group.command is not None for group in groups)
    return spec.command is None and not told


def source_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """What excludes each other."""
    if spec.git is not None and spec.artifact is not None:
        yield Problem("git", "stands beside artifact", "keep the one you mean")
    if spec.notebook is not None and not is_notebook(spec.entrypoint or spec.artifact):
        hint = "it is for an artifact or entrypoint that ends in .ipynb"
        yield Problem("notebook", "there is no notebook to execute", hint)
