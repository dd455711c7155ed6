"""Prepare a run: resolve, check and plan it; nothing is recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.api.prepared import PreparedRun
from muster.engines.profiles import file_of
from muster.engines.registry import engine_named, misconfigured
from muster.errors import InvalidInput, Problem
from muster.identity import new_id
from muster.plan.model import PrincipalPlan, RunBefore, RunPlan
from muster.service.context import Context
from muster.service.planning import has_our_files, mount_paths, plan_run
from muster.service.stored_spec import spec_of
from muster.spec.secret_names import stored_secrets
from muster.storage.home import Home
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.spec.models import JobSpec
    from muster.spec.override_models import RunOverrides


def prepare_run(
    context: Context,
    job: JobRecord,
    overrides: RunOverrides,
    *,
    spec: JobSpec | None = None,
    new_job: bool,
    notes: Sequence[str] = (),
) -> PreparedRun:
    """Resolve, check and plan a run.

    spec: the Job's, if it is decoded already. notes: the caller's, before those found here.
    Raises InvalidInput with every problem found.
    """
    from muster.plan.arrange import arrange
    from muster.plan.build import Identity
    from muster.service.program_check import check_programs
    from muster.spec.models import DEFAULT_FRAMEWORK
    from muster.spec.resolve import resolve

    home, submission = context.home, context.submission
    job_spec = spec_of(home, job) if spec is None else spec
    before: tuple[RunBefore, ...] = ()
    if overrides.after:
        from muster.service.runs_before import find_runs, variables  # few runs wait for others

        before = find_runs(context, overrides.after)
        if job_spec.workload is None:  # nothing is added to a JobSet of the user's
            overrides = replace(overrides, env={**overrides.env, **variables(before)})
    if home.config.exists():
        from muster.storage.config import read_config

        read_config(home)  # the user who can repair it sees the error
    identity = Identity(submission.created_id or new_id(), f"{job.name}-?", job.id, job.name)
    with _problems_as_written(job_spec):
        resolved = resolve(job_spec, overrides)
        _check_secrets(context, resolved.spec)
        _check_notify(context, resolved.spec)
        arranged = arrange(resolved.spec)
        sources = mount_paths(job_spec)
        code = job.artifact_sha256, job.artifact_name
        plan = plan_run(context, arranged, identity, *code, sources)
    missing: tuple[Problem, ...] = ()
    lacks: tuple[str, ...] = ()
    known = has_our_files(home, plan)  # else other machines have what they have
    if known:
        missing = tuple(check_programs(plan, submission))
    if known and (plan.framework != DEFAULT_FRAMEWORK or any(map(plan.runs_notebook, plan.groups))):
        from muster.service.framework_check import check_framework, check_other_needs

        checked = check_framework(plan, submission)
        others = check_other_needs(plan, submission)
        missing, lacks = (*missing, *checked.problems, *others), checked.notes
    missing = (*missing, *_misconfigured(context, plan))
    if submission.inputs or before:
        from muster.service.event_inputs import with_inputs  # few runs have any
        from muster.service.runs_before import inputs_of_runs

        found = inputs_of_runs(context, before)
        plan = with_inputs(plan, (*submission.inputs, *found.mounts))
        lacks = (*lacks, *found.notes)
    plan = replace(
        plan,
        notes=(*notes, *resolved.notes, *plan.notes, *lacks),
        oci_names=submission.oci_names,
        after=before,
        principal=_principal(context, plan, None),
    )
    return PreparedRun(
        job=job,
        new_job=new_job,
        job_spec=job_spec,
        spec=arranged.spec,
        overrides=overrides,
        origins=resolved.origins,
        plan=plan,
        notes=plan.notes,
        missing=missing,
    )


def _misconfigured(context: Context, plan: RunPlan) -> Iterator[Problem]:
    """Why the engine of a run can start none. An account may have a configuration of its own."""
    if context.submission.account is None:
        engine = engine_named(plan.engine, context.home)
        if why := misconfigured(engine, context.submission.environ):
            hint = f"`muster engines check {plan.engine}` checks its configuration"
            if (file := file_of(context.home, plan.engine)).exists():
                hint = (
                    f"its settings are in {file}; `muster engines check {plan.engine}` checks them"
                )
            yield Problem("engine", why, hint)


def _principal(
    context: Context, plan: RunPlan, before: PrincipalPlan | None
) -> PrincipalPlan | None:
    """How the programs of a run act as the run. before: how they did before it was suspended."""
    given = context.submission.principal or before
    if given is None or not engine_named(plan.engine, context.home).capabilities.principals:
        return None
    return given


def _check_secrets(context: Context, spec: JobSpec) -> None:
    """Raises InvalidInput with each secret that neither the job nor its project has."""
    if stored_secrets(spec):
        from muster.service.stored_secrets import missing_secrets

        if problems := [*missing_secrets(context, spec)]:
            raise InvalidInput(*problems)


def _check_notify(context: Context, spec: JobSpec) -> None:
    """Raises InvalidInput with each notification that the project does not have."""
    if spec.notify:
        from muster.service.notifications import missing_notifications

        if problems := [*missing_notifications(context, spec.notify)]:
            raise InvalidInput(*problems)


def packed_files(home: Home, prepared: PreparedRun) -> list[str]:
    """The files packed with a script because the script imports them; empty for other code."""
    from muster.spec.kinds import kind_of
    from muster.storage.artifacts import ArtifactRef, stored_names

    script, code = prepared.spec.artifact, prepared.plan.artifact
    if script is None or code is None or code.kind != "archive" or not os.path.isfile(script):
        return []
    name = os.path.basename(script)
    if kind_of(name) == "archive":
        return []
    ref = ArtifactRef(code.sha256, code.file_name, code.kind, code.size)
    return [file for file in stored_names(home, ref) if file != name]


@contextmanager
def _problems_as_written(written: JobSpec) -> Iterator[None]:
    """Report problems at the paths of the spec as it was written (`path_as_written`)."""
    try:
        yield
    except InvalidInput as error:
        problems = (path_as_written(problem, written) for problem in error.problems)
        raise type(error)(*dict.fromkeys(problems)) from None


def path_as_written(problem: Problem, written: JobSpec) -> Problem:
    """The problem at the path that it has in the spec as it was written.

    Problems are found in the normal form: there `nodes: 4` is a group of workers, the first node
    may be a group, and groups have the settings that they inherit from the job.
    """
    from muster.plan.arrange import MAIN
    from muster.spec.models import DEFAULT_GROUP

    groups = {group.name: group for group in written.node_groups}
    name, _, rest = problem.path.removeprefix("node_groups[").partition("].")
    if name not in groups and name.isdecimal():  # rules number the groups
        names = [*groups] or [DEFAULT_GROUP]
        name = names[int(name)] if int(name) < len(names) else name
    if not rest or (name not in groups and name not in (MAIN, DEFAULT_GROUP)):
        return problem
    group = groups.get(name) or next(iter(groups.values()), None)
    setting = rest.partition(".")[0].partition("[")[0]
    if group is None or (getattr(written, setting, None) and not getattr(group, setting, None)):
        return problem._replace(path=rest)  # the setting is the job's
    return problem._replace(path=f"node_groups[{group.name}].{rest}")


class PreparedResume(Struct, frozen=True):
    """A suspended run as it continues with overrides. Nothing of that is recorded yet."""

    spec: JobSpec
    origins: Mapping[str, str]
    plan: RunPlan
    #: Paths of the settings that the overrides change.
    changed: tuple[str, ...]
    #: The run's new display name, if it gets one.
    display_name: str | None


def prepare_resume(
    context: Context, run: RunRecord, overrides: RunOverrides, spec: JobSpec | None = None
) -> PreparedResume:
    """Apply overrides to a suspended run, and plan it again.

    Nodes that have succeeded stay, so the number of nodes and their ranks cannot change.
    spec: the run's, if it is decoded already. Raises InvalidInput.
    """
    from muster.plan.arrange import arrange
    from muster.plan.build import Identity
    from muster.service.event_inputs import inputs_of, with_inputs
    from muster.spec.resolve import merge
    from muster.spec.rules import check

    before = RunPlan.from_json(run.plan)
    written = spec_of(context.home, run) if spec is None else spec
    resolved, problems = merge(written, overrides)
    problems += [*check(resolved.spec), *_fixed(run.name, written, resolved.spec, overrides)]
    if problems:
        raise InvalidInput(*problems)
    _check_secrets(context, resolved.spec)
    changed = tuple(path for path, origin in resolved.origins.items() if origin == "override")
    arranged = arrange(resolved.spec)
    sizes = [(group.name, group.most_replicas, group.nodes) for group in arranged.spec.node_groups]
    if sizes != [(group.name, group.replicas, group.nodes) for group in before.groups]:
        text = "these options change the nodes; a suspended run keeps its nodes"
        raise InvalidInput(Problem("framework_options", text, "start another run"))
    code = before.artifact
    identity = Identity(run.id, run.name, run.job_id, run.job_name)
    sha256, file_name = (code.sha256, code.file_name) if code else (None, None)
    plan = plan_run(context, arranged, identity, sha256, file_name, {})
    if inputs := inputs_of(before):
        plan = with_inputs(plan, inputs)
    return PreparedResume(
        spec=arranged.spec,
        origins=_origins(run.origins, resolved.origins),
        plan=replace(
            plan,
            notes=(*resolved.notes, *plan.notes),
            node_outputs=before.node_outputs,
            oci_names=before.oci_names,
            after=before.after,
            principal=_principal(context, plan, before.principal),
        ),
        changed=changed,
        display_name=overrides.run_name,
    )


def _origins(before: Mapping[str, str], now: Mapping[str, str]) -> Mapping[str, str]:
    """Origins of the run before its suspension, with those of the settings that change."""
    return {
        path: origin if origin == "override" else before[path]
        for path, origin in now.items()
        if path in before or origin == "override"
    }


def _fixed(
    name: str, before: JobSpec, after: JobSpec, overrides: RunOverrides
) -> Iterator[Problem]:
    """Problems with settings that cannot change while a run is suspended."""
    text, hint = "cannot change while a run is suspended", "start another run"
    for old, new in zip(before.node_groups, after.node_groups, strict=True):
        path = f"node_groups[{new.name}]"
        if old.nodes != new.nodes:
            yield Problem(f"{path}.nodes", f"the nodes of a replica {text}", hint)
        if old.array != new.array:
            yield Problem(f"{path}.array", f"the parameters of replicas {text}", hint)
        elif old.only != new.only:
            yield Problem(f"{path}.only", f"the replicas that run {text}", hint)
        if old.most_replicas != new.most_replicas and old.replicas == new.replicas:
            yield Problem(f"{path}.max_replicas", f"the maximum of replicas {text}", hint)
        if old.replicas != new.replicas:
            way = f"`muster runs scale {name} {new.name}={new.replicas}` changes their number"
            way = way if old.max_replicas is not None else hint
            yield Problem(f"{path}.replicas", f"the number of replicas {text}", way)
    if before.processes_per_node != after.processes_per_node:
        yield Problem("processes_per_node", f"the processes of a node {text}", hint)
    if before.engine_name != after.engine_name:
        yield Problem("engine", f"the engine {text}", hint)
    if before.logging.directory != after.logging.directory:
        yield Problem("logging.directory", f"the folder of the output {text}", hint)
    if overrides.suspend:
        text = "the run is being resumed"
        yield Problem("suspend", text, f"leave it out, or do not resume {name}")
