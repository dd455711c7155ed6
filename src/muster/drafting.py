"""A run that could be started: resolved, checked and planned, with nothing recorded yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.local import addresses
from muster.engines.local.engine import LocalEngine
from muster.errors import InvalidInput, Problem
from muster.identity import new_id
from muster.plan.model import (
    ArtifactPlan,
    EnvironmentPlan,
    GitPlan,
    GroupPlan,
    LeftBehind,
    ResourcePlan,
    RunPlan,
)
from muster.storage.home import Home
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.plan.arrange import Arranged
    from muster.plan.build import Identity
    from muster.spec.models import JobSpec, NodeGroup
    from muster.spec.override_models import RunOverrides
    from muster.spec.shapes import Shape
    from muster.spec.sources import Git
    from muster.storage.artifacts import ArtifactRef


class Draft(Struct, frozen=True):
    """A run that passed every check and could be started. Nothing of it is recorded yet."""

    job: JobRecord
    new_job: bool
    spec: JobSpec
    overrides: RunOverrides
    origins: Mapping[str, str]
    plan: RunPlan
    notes: tuple[str, ...]


def draft_run(
    home: Home,
    job: JobRecord,
    overrides: RunOverrides,
    *,
    new_job: bool,
    notes: Sequence[str] = (),
) -> Draft:
    """Resolve, check and plan. notes: what there is to say already. Raises InvalidInput with every
    problem found."""
    from muster.plan.arrange import arrange
    from muster.plan.build import Identity
    from muster.spec.resolve import resolve, spec_from_json

    written = spec_from_json(job.spec)
    identity = Identity(new_id(), f"{job.name}-?", job.id, job.name)
    with _in_own_terms(written):
        resolved = resolve(written, overrides)
        arranged = arrange(resolved.spec)
        sources = mount_paths(written)
        plan = _plan(home, arranged, identity, job.artifact_sha256, job.artifact_name, sources)
    plan = replace(plan, notes=(*notes, *resolved.notes, *plan.notes))
    return Draft(job, new_job, arranged.spec, overrides, resolved.origins, plan, plan.notes)


@contextmanager
def _in_own_terms(written: JobSpec) -> Iterator[None]:
    """Problems are told of what the spec's author wrote: `nodes: 4` is a group of workers to us,
    its first node may be one of its own, and groups take over what the job says."""
    try:
        yield
    except InvalidInput as error:
        told = (in_own_terms(problem, written) for problem in error.problems)
        raise type(error)(*dict.fromkeys(told)) from None


def in_own_terms(problem: Problem, written: JobSpec) -> Problem:
    """The problem, with the path that it has in the spec as it was written."""
    from muster.plan.arrange import MAIN
    from muster.spec.models import DEFAULT_GROUP

    groups = {group.name: group for group in written.node_groups}
    name, _, rest = problem.path.removeprefix("node_groups[").partition("].")
    if not rest or (name not in groups and name not in (MAIN, DEFAULT_GROUP)):
        return problem
    group = groups.get(name) or next(iter(groups.values()), None)
    setting = rest.partition(".")[0].partition("[")[0]
    if group is None or (getattr(written, setting, None) and not getattr(group, setting, None)):
        return problem._replace(path=rest)  # it is the job's
    return problem._replace(path=f"node_groups[{group.name}].{rest}")


class Redraft(Struct, frozen=True):
    """A suspended run, as it is to go on."""

    spec: JobSpec
    origins: Mapping[str, str]
    plan: RunPlan
    changed: tuple[str, ...]
    run_name: str | None


def redraft_run(home: Home, run: RunRecord, overrides: RunOverrides) -> Redraft:
    """A suspended run with whatever else a run can change. What has succeeded of it stays, so
    which nodes there are cannot change. Raises InvalidInput.
    """
    from muster.plan.arrange import arrange
    from muster.plan.build import Identity
    from muster.spec.resolve import merge, spec_from_json
    from muster.spec.rules import check

    before = RunPlan.from_json(run.plan)
    written = spec_from_json(run.spec)
    resolved, problems = merge(written, overrides)
    problems += [*check(resolved.spec), *_fixed(run.name, written, resolved.spec, overrides)]
    if problems:
        raise InvalidInput(*problems)
    changed = tuple(path for path, origin in resolved.origins.items() if origin == "override")
    arranged = arrange(resolved.spec)
    sizes = [(group.name, group.most_replicas, group.nodes) for group in arranged.spec.node_groups]
    if sizes != [(group.name, group.replicas, group.nodes) for group in before.groups]:
        text = "with these the run would have other nodes, and those it has cannot change"
        raise InvalidInput(Problem("framework_options", text, "start another run"))
    artifact = before.artifact
    plan = _plan(
        home,
        arranged,
        Identity(run.id, run.name, run.job_id, run.job_name),
        artifact.sha256 if artifact else None,
        artifact.file_name if artifact else None,
        {},
    )
    origins = {
        path: run.origins.get(path, origin) if origin != "override" else origin
        for path, origin in resolved.origins.items()
        if path in run.origins or origin == "override"
    }
    plan = replace(plan, notes=(*resolved.notes, *plan.notes))
    return Redraft(arranged.spec, origins, plan, changed, overrides.run_name)


def _fixed(
    name: str, before: JobSpec, after: JobSpec, overrides: RunOverrides
) -> Iterator[Problem]:
    """What cannot change of a run that has begun: which nodes there are, and their ranks."""
    text, hint = "cannot change while a run is suspended", "start another run"
    for old, new in zip(before.node_groups, after.node_groups, strict=True):
        path = f"node_groups[{new.name}]"
        if old.nodes != new.nodes:
            yield Problem(f"{path}.nodes", f"the nodes of a replica {text}", hint)
        if old.most_replicas != new.most_replicas and old.replicas == new.replicas:
            yield Problem(f"{path}.max_replicas", f"how many replicas there may be {text}", hint)
        if old.replicas != new.replicas:
            way = f"`muster runs scale {name} {new.name}={new.replicas}` asks for more or fewer"
            way = way if old.max_replicas is not None else hint
            yield Problem(f"{path}.replicas", f"replicas {text} by being set", way)
    if before.processes_per_node != after.processes_per_node:
        yield Problem("processes_per_node", f"the processes of a node {text}", hint)
    if before.logging.directory != after.logging.directory:
        yield Problem("logging.directory", f"where output is kept {text}", hint)
    if overrides.suspend:
        yield Problem(
            "suspend", "the run is being resumed", f"leave it out, or do not resume {name}"
        )


def mount_paths(written: JobSpec) -> Mapping[str, str]:
    """Where the sources of mounts stand in a spec: source -> path."""
    paths = {m.source: f"mounts[{n}].source" for n, m in enumerate(written.mounts)}
    for group in written.node_groups:
        for number, mount in enumerate(group.mounts):
            paths.setdefault(mount.source, f"node_groups[{group.name}].mounts[{number}].source")
    return paths


def _plan(
    home: Home,
    arranged: Arranged,
    identity: Identity,
    code: str | None,
    code_name: str | None,
    sources: Mapping[str, str],
) -> RunPlan:
    """Plan and check. sources: see `mount_paths`. Raises InvalidInput with every problem found."""
    artifact = _artifact_plan(home, arranged.spec, code, code_name)
    plan, problems = plan_on_machine(home, arranged, identity, artifact, sources)
    if plan is not None and artifact is not None and artifact.kind == "archive":
        plan = _with_entrypoints(home, plan, artifact, problems)
    if plan is None or problems:
        raise InvalidInput(*problems)
    notes = (*LocalEngine().notes(plan), *_chosen(plan), *_advice(home, plan))
    return replace(plan, notes=notes)


def _with_entrypoints(
    home: Home, plan: RunPlan, artifact: ArtifactPlan, problems: list[Problem]
) -> RunPlan:
    """With the entry points that a group or the run has chosen in place of the Job's."""
    from muster.spec.oci_variables import ENTRYPOINT, same_file

    def differs(group: GroupPlan) -> bool:
        said, own = group.env.get(ENTRYPOINT), artifact.entrypoint
        return bool(said) and group.command is None and not (own and same_file(str(said), own))

    if not any(map(differs, plan.groups)):
        return plan
    from muster.storage.artifacts import ArtifactRef, find_entry

    ref = ArtifactRef(artifact.sha256, artifact.file_name, artifact.kind, artifact.size)
    groups = []
    for group in plan.groups:
        if differs(group):
            try:
                entrypoint = find_entry(home, ref, group.env[ENTRYPOINT])
            except InvalidInput as error:
                path = f"node_groups[{group.name}].env.{ENTRYPOINT}"
                problems += [problem._replace(path=path) for problem in error.problems]
            else:
                groups.append(replace(group, entrypoint=entrypoint))
                continue
        groups.append(group)
    return replace(plan, groups=tuple(groups))


def _chosen(plan: RunPlan) -> Iterator[str]:
    own = plan.artifact.entrypoint if plan.artifact is not None else None
    for group in plan.groups:
        if group.entrypoint is not None and own is not None:
            text = f"runs {group.entrypoint} (JOB_RUN_ENTRYPOINT), not the job's {own}"
            yield f"group {group.name}: {text}"


def plan_on_machine(
    home: Home,
    arranged: Arranged,
    identity: Identity,
    artifact: ArtifactPlan | None,
    sources: Mapping[str, str],
) -> tuple[RunPlan | None, list[Problem]]:
    """The plan, if there can be one, and what is wrong with it on this machine."""
    from muster.plan.build import build_plan
    from muster.storage.mounts import check_sources, classify_source

    spec = arranged.spec
    shapes = _Shapes(home.shapes, sum(_size(group) for group in spec.node_groups))
    mounted = [m.source for g in spec.node_groups for m in g.mounts]
    problems = check_sources({source: sources.get(source, "mounts") for source in mounted})
    environment = _environment_plan(spec)
    if environment is not None:
        from muster.storage.installers import check_tools

        problems += check_tools(environment, os.environ)
    engine = LocalEngine()
    try:
        plan = build_plan(
            arranged,
            identity,
            artifact=artifact,
            addresses=addresses.allot,
            source_kind=classify_source,
            shape_of=shapes.resources,
            in_place=engine.in_place,
        )
    except InvalidInput as error:
        return None, [*problems, *shapes.problems, *error.problems]
    problems += shapes.problems + shapes.exceeded(spec) + engine.check(plan, home.root)
    return replace(plan, environment=environment), problems


def _advice(home: Home, plan: RunPlan) -> Iterator[str]:
    """What the framework has to say about the program, if that is Python's."""
    from muster.frameworks.base import Framework
    from muster.frameworks.registry import get_framework

    framework, code = get_framework(plan.framework), plan.artifact
    # no framework of a trivial run has any, and reading takes time
    if code is None or type(framework).advice is Framework.advice:
        return
    from muster.storage.artifacts import ArtifactRef, read_entry

    ref = ArtifactRef(code.sha256, code.file_name, code.kind, code.size)
    name, source = read_entry(home, ref, code.entrypoint)
    env = {variable for group in plan.groups for variable in (*group.env, *group.node_env)}
    for sentence in framework.advice(source, plan.network, env):
        yield f"{name}: {sentence}"


def _size(group: NodeGroup) -> int:
    return group.nodes * group.replicas


def _artifact_plan(
    home: Home, spec: JobSpec, code: str | None, code_name: str | None
) -> ArtifactPlan | None:
    if code is None:
        return None
    from muster.storage.artifacts import load_ref

    ref = load_ref(home, code, code_name or "")
    return ArtifactPlan(
        ref.sha256,
        ref.file_name,
        ref.kind,
        ref.size,
        spec.entrypoint,
        spec.notebook.exclude_tags if spec.notebook else (),
        _git_plan(spec.git),
        _left_behind(home, spec, ref),
    )


def _left_behind(home: Home, spec: JobSpec, ref: ArtifactRef) -> LeftBehind | None:
    """Of a script or folder at hand; an archive or a function has nothing beside it that counts."""
    if spec.artifact is None or spec.git is not None:
        return None
    from muster.storage.entrypoint import kind_of

    code = Path(spec.artifact)
    if not os.path.isdir(code) and kind_of(code.name) in ("archive", "function", "jar", "class"):
        return None
    from muster.storage.left_behind import left_behind

    return left_behind(home, code, ref)


def _git_plan(git: Git | None) -> GitPlan | None:
    if git is None:
        return None
    commit = git.commit or ""  # a Job that was stored has the one it is
    return GitPlan(git.url, commit, git.branch, git.path, git.token_env)


def _environment_plan(spec: JobSpec) -> EnvironmentPlan | None:
    if not spec.requirements and spec.conda is None:
        return None
    return EnvironmentPlan(spec.requirements or (), spec.conda)


class _Shapes:
    """Shape names into resources, collecting what is wrong with them."""

    def __init__(self, catalogue: Path, nodes: int) -> None:
        self._catalogue = catalogue
        self._nodes = nodes
        self._found: dict[str, Shape] = {}
        self.problems: list[Problem] = []

    def resources(self, name: str) -> ResourcePlan:
        from muster.spec.shapes import check_multinode, find_shape

        try:
            shape = self._found[name] = find_shape(name, self._catalogue)
        except InvalidInput as error:
            self.problems += error.problems
            return ResourcePlan(shape=name)
        self.problems += check_multinode(shape, self._nodes)
        if shape.local:
            return ResourcePlan(shape=name)
        return ResourcePlan(shape.cpus, shape.memory, shape.gpus, name)

    def exceeded(self, spec: JobSpec) -> list[Problem]:
        """Resources that are more than the shape beside them has."""
        problems: list[Problem] = []
        for group in spec.node_groups:
            if group.resources is not None and group.shape in self._found:
                from muster.spec.shapes import check_within

                path = f"node_groups[{group.name}].resources"
                problems += check_within(self._found[group.shape], group.resources, path)
        return problems
