"""Plan a run for this machine, and check that the machine can run it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.engines.capabilities import image_problems, spec_problems
from muster.engines.registry import check, engine_named, unavailable
from muster.errors import InvalidInput, Problem
from muster.plan.model import (
    ArtifactPlan,
    EnvironmentPlan,
    GitPlan,
    ResourcePlan,
    RunPlan,
    UnsentFiles,
)
from muster.service.context import Context
from muster.spec.separation import owner_problems
from muster.storage.home import Home
from muster.submission import Submission
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.api.answers import PlanLimits
    from muster.engines.base import Engine
    from muster.engines.findings import Finding
    from muster.frameworks.base import Network
    from muster.plan.arrange import Arranged
    from muster.plan.build import Identity
    from muster.spec.models import JobSpec, Mount, NodeGroup
    from muster.spec.shapes import Shape
    from muster.spec.sources import Git
    from muster.storage.artifacts import ArtifactRef


def mount_paths(written: JobSpec) -> Mapping[str, str]:
    """The path in the spec of each source of a mount."""
    paths = {m.source: f"mounts[{n}].source" for n, m in enumerate(written.mounts) if m.source}
    for group in written.node_groups:
        for number, mount in enumerate(group.mounts):
            if mount.source is None:
                continue
            paths.setdefault(mount.source, f"node_groups[{group.name}].mounts[{number}].source")
        for place, one in enumerate(group.extra_containers):
            where = f"node_groups[{group.name}].extra_containers[{place}].mounts"
            for number, mount in enumerate(one.mounts):
                if mount.source is not None:
                    paths.setdefault(mount.source, f"{where}[{number}].source")
    return paths


def has_our_files(home: Home, plan: RunPlan) -> bool:
    """Whether nodes have the programs and packages of this machine. If not, only they know what
    they have."""
    return engine_named(plan.engine, home).capabilities.shared_files


@as_root()
def plan_run(
    context: Context,
    arranged: Arranged,
    identity: Identity,
    code_sha256: str | None,
    code_name: str | None,
    sources: Mapping[str, str],
) -> RunPlan:
    """The plan of a run, with the notes of the engine and the framework.

    code_sha256, code_name: of the Job's stored code. sources: see `mount_paths`.
    Raises InvalidInput with every problem found.
    """
    home = context.home
    artifact = _artifact_plan(home, arranged.spec, code_sha256, code_name)
    plan, problems = plan_on_machine(context, arranged, identity, artifact, sources)
    if plan is not None and artifact is not None and artifact.kind == "archive":
        plan = _with_entrypoints(home, plan, artifact, problems)
    if plan is None or problems:
        raise InvalidInput(*problems)
    engine = engine_named(plan.engine, home)
    notes = (
        *_owner_notes(context.submission, engine, plan),
        *engine.notes(plan),
        *_entrypoint_notes(plan),
        *_advice(home, plan),
    )
    return replace(plan, notes=notes)


def _with_entrypoints(
    home: Home, plan: RunPlan, artifact: ArtifactPlan, problems: list[Problem]
) -> RunPlan:
    """Give groups the entry points that their JOB_RUN_ENTRYPOINT names instead of the Job's.

    Entry points that are not in the archive are added to `problems`.
    """
    from muster.spec.oci_variables import ENTRYPOINT, group_entrypoint

    chosen = {g.name: group_entrypoint(artifact.entrypoint, g.env, g.command) for g in plan.groups}
    if not any(chosen.values()):
        return plan
    from muster.storage.artifacts import ArtifactRef, find_entry

    ref = ArtifactRef(artifact.sha256, artifact.file_name, artifact.kind, artifact.size)
    groups = []
    for group in plan.groups:
        own = chosen[group.name]
        if own is not None:
            try:
                entrypoint = find_entry(home, ref, own)
            except InvalidInput as error:
                path = f"node_groups[{group.name}].env.{ENTRYPOINT}"
                problems += [problem._replace(path=path) for problem in error.problems]
            else:
                groups.append(replace(group, entrypoint=entrypoint))
                continue
        groups.append(group)
    return replace(plan, groups=tuple(groups))


def _entrypoint_notes(plan: RunPlan) -> Iterator[str]:
    own = plan.artifact.entrypoint if plan.artifact is not None else None
    for group in plan.groups:
        if group.entrypoint is not None and own is not None:
            text = f"runs {group.entrypoint} (JOB_RUN_ENTRYPOINT), not the job's {own}"
            yield f"group {group.name}: {text}"


def _without_patched(spec: JobSpec) -> JobSpec:
    """A job without the mounts for which a patch of its pods has a volume."""
    if all(group.kubernetes is None for group in spec.node_groups):
        return spec
    from muster.spec.formats.jobset.own_parts import NODE
    from muster.spec.formats.jobset.patches import mounted_paths

    def left(mounts: Sequence[Mount], group: NodeGroup, container: str) -> tuple[Mount, ...]:
        patch = {} if group.kubernetes is None else group.kubernetes.pod
        paths = mounted_paths(patch, container)
        return tuple(mount for mount in mounts if mount.destination not in paths)

    groups = [
        replace(
            group,
            mounts=left(group.mounts, group, NODE),
            extra_containers=tuple(
                replace(one, mounts=left(one.mounts, group, one.name))
                for one in group.extra_containers
            ),
        )
        for group in spec.node_groups
    ]
    return replace(spec, node_groups=tuple(groups))


def _mounted_sources(spec: JobSpec) -> list[str]:
    mounts = [m for g in spec.node_groups for m in g.mounts]
    mounts += [m for g in spec.node_groups for one in g.extra_containers for m in one.mounts]
    return [mount.source for mount in mounts if mount.source]


def plan_on_machine(
    context: Context,
    arranged: Arranged,
    identity: Identity,
    artifact: ArtifactPlan | None,
    sources: Mapping[str, str],
) -> tuple[RunPlan | None, list[Problem]]:
    """The plan, None if none can be made, and its problems on this machine."""
    from muster.plan.arrange import without_replacement
    from muster.plan.build import build_plan
    from muster.spec.kinds import classify_source
    from muster.storage.mount_sources import check_sources

    home, spec = context.home, arranged.spec
    shapes = _Shapes(home.shapes, sum(_size(group) for group in spec.node_groups))
    problems: list[Problem] = []
    engine = _usable_engine(spec.engine_name, home, problems)
    here = spec if engine is None or not engine.capabilities.pod_patches else _without_patched(spec)
    mounted = _mounted_sources(here)
    if not context.submission.has_files:
        from muster.spec.separation import local_paths, workload_problems

        # the code was sent, whatever it was made from
        problems += local_paths(replace(here, artifact=None, git=None))
        problems += workload_problems(spec)
        mounted = [source for source in mounted if not source.startswith("/")]
    places = {source: sources.get(source, "mounts") for source in mounted}
    # names are read by engines, also where a patch has another volume
    named = {
        source: sources.get(source, "mounts")
        for source in _mounted_sources(spec)
        if classify_source(source) in ("scratch", "volume")
    }
    misnamed = check_sources(named)
    problems += [*misnamed, *(one for one in check_sources(places) if one not in misnamed)]
    if not context.submission.allow_private_addresses:
        from muster.storage.private_addresses import private_sources

        problems += private_sources(places)
    environment = _environment_plan(spec)
    if environment is not None:
        from muster.storage.installers import check_tools

        problems += check_tools(environment, context.submission.environ)
    if engine is not None and not context.submission.has_files:
        problems += _separation_problems(context, engine)
    if engine is not None:
        if not engine.capabilities.replace_node:
            arranged = without_replacement(arranged)
        problems += spec_problems(engine, arranged.spec)
        if separated(context.submission, engine):
            problems += owner_problems(arranged.spec)
    try:
        plan = build_plan(
            arranged,
            identity,
            artifact=artifact,
            addresses=_no_addresses if engine is None else engine.addresses,
            source_kind=classify_source,
            shape_of=shapes.resources,
            at_once=_one_at_once if engine is None else engine.replicas_at_once,
            in_place=engine is None or engine.capabilities.in_place,
            run_network="" if engine is None else _why_run_network(context.submission, engine),
        )
    except InvalidInput as error:
        return None, [*problems, *shapes.problems, *error.problems]
    allowed = context.submission.allow_private_addresses
    plan = replace(plan, environment=environment, allow_private_addresses=allowed)
    problems += shapes.problems + shapes.exceeded(spec)
    if engine is not None:
        problems += image_problems(engine, spec, plan)
        if not misnamed:
            problems += check(engine, plan, home.root, plan.policy.replicas_at_once)
    return plan, problems


def _usable_engine(name: str, home: Home, problems: list[Problem]) -> Engine | None:
    """The engine; None, with a problem, if it cannot be used."""
    try:
        engine = engine_named(name, home)
    except InvalidInput as error:
        problems += error.problems
        return None
    if reason := unavailable(engine):
        hint = "`muster engines list` shows all engines"
        problems.append(Problem("engine", f"{name} cannot be used here: {reason}", hint))
        return None
    return engine


def _separation_problems(context: Context, engine: Engine) -> Iterator[Problem]:
    """Why the caller of a server may not use an engine that keeps nobody's runs apart."""
    from muster.engines.separation import why_refused

    if why := why_refused(
        engine.name,
        separates=engine.capabilities.separates_owners,
        account=context.submission.account is not None,
        root=os.geteuid() == 0,
        owner=context.caller.user,
        first_owner=context.store.runs.first_owner(),
    ):
        yield Problem("engine", why)


def _owner_notes(submission: Submission, engine: Engine, plan: RunPlan) -> Iterator[str]:
    if not separated(submission, engine) or submission.account is None:
        return
    name = submission.account.name
    yield f"nodes run as the Unix account {name}, apart from the runs of other owners"
    if submission.oci_names and submission.principal is not None and plan.own_interfaces:
        from muster.addresses import is_on_loopback  # runs of servers only

        url = submission.principal.endpoint
        if is_on_loopback(url):
            yield (
                f"clients of OCI in nodes do not reach {url}, and wait: start the server with "
                "--host, or set endpoint in the section [oci] of server.toml"
            )


def _why_run_network(submission: Submission, engine: Engine) -> str:
    """Why nodes have a network of their run where nothing else is needed; "" if they have not."""
    if separated(submission, engine):
        return "runs of different owners are kept apart"
    return "each node has a network of its own" if engine.capabilities.run_network else ""


def separated(submission: Submission, engine: Engine) -> bool:
    """Whether a run is kept apart from those of other owners."""
    return submission.account is not None and engine.capabilities.separates_owners


def _one_at_once(_resources: ResourcePlan, _nodes: int) -> int:
    return 1


def _no_addresses(_network: Network, nodes: int) -> Sequence[str]:
    """Addresses of nodes without an engine: the other problems of the plan are found with them."""
    return [""] * nodes


def _advice(home: Home, plan: RunPlan) -> Iterator[str]:
    """The framework's advice on the program, if that is a Python program."""
    from muster.frameworks.base import Framework
    from muster.frameworks.registry import get_framework

    framework, code = get_framework(plan.framework), plan.artifact
    # most frameworks have no advice: reading the program for them would take time for nothing
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
    home: Home, spec: JobSpec, sha256: str | None, name: str | None
) -> ArtifactPlan | None:
    if sha256 is None:
        return None
    from muster.storage.artifacts import load_ref

    ref = load_ref(home, sha256, name or "")
    return ArtifactPlan(
        sha256=ref.sha256,
        file_name=ref.file_name,
        kind=ref.kind,
        size=ref.size,
        entrypoint=spec.entrypoint,
        exclude_tags=spec.notebook.exclude_tags if spec.notebook else (),
        git=_git_plan(spec.git),
        unsent_files=_unsent_files(home, spec, ref),
    )


def _unsent_files(home: Home, spec: JobSpec, ref: ArtifactRef) -> UnsentFiles | None:
    """The files next to a script, or ignored in a folder, that are not sent.

    None for code of another kind: an archive or a function is sent whole.
    """
    if spec.artifact is None or spec.git is not None:
        return None
    from muster.spec.kinds import kind_of

    code = Path(spec.artifact)
    if not os.path.isdir(code) and kind_of(code.name) in ("archive", "function", "jar", "class"):
        return None
    from muster.storage.unsent_files import unsent_files

    return unsent_files(home, code, ref)


def _git_plan(git: Git | None) -> GitPlan | None:
    if git is None:
        return None
    commit = git.commit or ""  # set for a stored Job
    return GitPlan(git.url, commit, git.branch, git.path, git.token_env)


def _environment_plan(spec: JobSpec) -> EnvironmentPlan | None:
    if not spec.requirements and spec.conda is None:
        return None
    return EnvironmentPlan(spec.requirements or (), spec.conda)


def limits_of(home: Home, plan: RunPlan) -> PlanLimits:
    """What the nodes of a planned run would get."""
    from muster.api.answers import PlanLimits

    engine = engine_named(plan.engine, home)
    limits = engine.limits({group.name: group.resources for group in plan.groups})
    return PlanLimits(
        limits, engine.shares_of_memory(plan), engine.explain(plan), engine.preview(plan)
    )


def dry_run(home: Home, plan: RunPlan) -> list[Finding]:
    """See `engines.base.Engine.dry_run`."""
    return engine_named(plan.engine, home).dry_run(plan)


class _Shapes:
    """Looks shapes up, and collects the problems with them."""

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
        """Problems with resources that exceed the shape of their group."""
        problems: list[Problem] = []
        for group in spec.node_groups:
            if group.resources is not None and group.shape in self._found:
                from muster.spec.shapes import check_within

                path = f"node_groups[{group.name}].resources"
                problems += check_within(self._found[group.shape], group.resources, path)
        return problems
