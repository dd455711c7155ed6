"""A run that could be started: resolved, checked and planned, with nothing recorded yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.local import addresses
from muster.engines.local.engine import LocalEngine
from muster.errors import InvalidInput, Problem
from muster.identity import new_id
from muster.plan.model import ArtifactPlan, ResourcePlan, RunPlan
from muster.storage.home import Home
from muster.store.records import JobRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec, NodeGroup, RunOverrides


class Draft(Struct, frozen=True):
    """A run that passed every check and could be started. Nothing of it is recorded yet."""

    job: JobRecord
    new_job: bool
    spec: JobSpec
    overrides: RunOverrides
    origins: Mapping[str, str]
    plan: RunPlan
    notes: tuple[str, ...]


def draft_run(home: Home, job: JobRecord, overrides: RunOverrides, *, new_job: bool) -> Draft:
    """Resolve, check and plan. Raises InvalidInput with every problem found."""
    from muster.plan.build import Identity, build_plan
    from muster.spec.resolve import resolve, spec_from_json
    from muster.storage.mounts import check_sources, classify_source

    resolved = resolve(spec_from_json(job.spec), overrides)
    spec = resolved.spec
    shapes = _Shapes(home.shapes, sum(_size(group) for group in spec.node_groups))
    problems = check_sources([m.source for g in spec.node_groups for m in g.mounts])
    plan = build_plan(
        spec,
        Identity(new_id(), f"{job.name}-?", job.id, job.name),
        artifact=_artifact_plan(home, job, spec),
        addresses=addresses.allot,
        source_kind=classify_source,
        shape_of=shapes.resources,
        in_place=True,
    )
    engine = LocalEngine()
    problems += shapes.problems + engine.check(plan, home.root)
    if problems:
        raise InvalidInput(*problems)
    notes = tuple(engine.notes(plan))
    plan = replace(plan, notes=notes)
    return Draft(job, new_job, spec, overrides, resolved.origins, plan, notes)


def _size(group: NodeGroup) -> int:
    return group.nodes * group.replicas


def _artifact_plan(home: Home, job: JobRecord, spec: JobSpec) -> ArtifactPlan | None:
    if job.artifact_sha256 is None:
        return None
    from muster.storage.artifacts import load_ref

    ref = load_ref(home, job.artifact_sha256, job.artifact_name or "")
    return ArtifactPlan(ref.sha256, ref.file_name, ref.kind, ref.size, spec.entrypoint)


class _Shapes:
    """Shape names into resources, collecting what is wrong with them."""

    def __init__(self, catalogue: Path, nodes: int) -> None:
        self._catalogue = catalogue
        self._nodes = nodes
        self.problems: list[Problem] = []

    def resources(self, name: str) -> ResourcePlan:
        from muster.spec.shapes import check_multinode, find_shape

        try:
            shape = find_shape(name, self._catalogue)
        except InvalidInput as error:
            self.problems += error.problems
            return ResourcePlan(shape=name)
        self.problems += check_multinode(shape, self._nodes)
        if shape.local:
            return ResourcePlan(shape=name)
        return ResourcePlan(shape.cpus, shape.memory, shape.gpus, name)
