"""Prepare another run of what an earlier run ran, perhaps with changes, such as another engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.api.prepared import PreparedRun
from muster.errors import InvalidInput, MusterError, Problem
from muster.lifecycle.states import AT_REST
from muster.service.context import Context
from muster.service.readable import readable_job
from muster.service.stored_spec import overrides_of, spec_of
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes, combined
from muster.spec.reader import ParsedSpec
from muster.spec.values import (
    ADOPTED_TAG,
    AFTER_TAG,
    EVENT_TAG,
    RERUN_TAG,
    RETRY_TAG,
    SCHEDULE_TAG,
    SCHEDULED_TIME_TAG,
)
from muster.store.records import JobRecord, RunRecord

if TYPE_CHECKING:
    from muster.api.submissions import PresentCode

#: Tags that say where a run comes from.
_OF_THE_RUN = (RETRY_TAG, SCHEDULE_TAG, SCHEDULED_TIME_TAG, EVENT_TAG, AFTER_TAG)


def prepare_rerun(
    context: Context,
    run: RunRecord,
    changes: Changes,
    *,
    update_code: bool = False,
    present_code: PresentCode | None = None,
    notes: Sequence[str] = (),
) -> PreparedRun:
    """See `MusterAPI.prepare_rerun`. present_code: see `run_again`. notes: more notes."""
    from muster.service.review import review
    from muster.spec.partial_overrides import with_items
    from muster.spec.resolve import merge

    if run.state not in AT_REST:
        ways = [f"`muster cancel {run.name}`", f"`muster runs suspend {run.name}`"]
        is_as_it_is = run.spec.get("workload") is not None  # which Muster does not suspend
        hint = f"{' or '.join(ways[:1] if is_as_it_is else ways)} ends its programs"
        raise InvalidInput(Problem("", f"{run.name} is still {run.state}", hint))
    if ADOPTED_TAG in run.tags:
        text = f"{run.name} has adopted {run.tags[ADOPTED_TAG]}, which Muster has not made"
        raise InvalidInput(Problem("", text, "run its manifest"))
    job = readable_job(context, run.job_id)
    job.check_active()
    earlier = replace(overrides_of(context.home, run), run_name=None, suspend=None, after=None)
    spec = merge(spec_of(context.home, job), earlier)[0].spec
    changes = with_items(changes, spec)
    if changes.problems:
        raise InvalidInput(*review(context, ParsedSpec(spec), changes))
    overrides = combined(earlier, changes.overrides)
    others = {name: text for name, text in overrides.tags.items() if name not in _OF_THE_RUN}
    overrides = replace(overrides, tags={**others, RERUN_TAG: run.name})
    moved = (overrides.engine or spec.engine_name) != run.engine
    before = f"{run.state} on engine {run.engine}" if moved else run.state
    notes = [f"runs {run.name} again ({before})", *notes]
    again = partial(run_again, update_code=update_code, present_code=present_code)
    try:
        return _with_differences(context, run, again(context, job, run, overrides, notes))
    except InvalidInput as error:
        problems = review(context, ParsedSpec(spec), changes, error.problems)
        raise type(error)(*problems) from None


def _with_differences(context: Context, run: RunRecord, prepared: PreparedRun) -> PreparedRun:
    """The run with notes of all that differs from the one that it repeats."""
    from msgspec import to_builtins

    from muster.describe.differences import difference_lines
    from muster.service.present_code import name_of_code

    # the engine is told by its name, whether it was chosen or is the default
    before = replace(spec_of(context.home, run), engine=run.engine, artifact=None, git=None)
    after = replace(prepared.spec, engine=prepared.plan.engine, artifact=None, git=None)
    lines = difference_lines(to_builtins(before), to_builtins(after))
    if prepared.job.id != run.job_id:
        earlier = context.store.jobs.find(run.project, run.job_id)
        code = name_of_code(context, earlier, run)
        version = "a new version" if prepared.new_job else prepared.job.handle
        lines.insert(0, f"{code}: {earlier.handle} -> {version}")
    notes = (*prepared.notes, *(f"differs from {run.name}: {line}" for line in lines))
    return replace(prepared, notes=notes, plan=replace(prepared.plan, notes=notes))


def run_again(
    context: Context,
    job: JobRecord,
    run: RunRecord,
    overrides: RunOverrides,
    notes: Sequence[str],
    *,
    update_code: bool,
    present_code: PresentCode | None,
) -> PreparedRun:
    """Prepare another run of a run's Job or, with `update_code`, of its code as it is now.
    present_code: this code, which a client on another machine has sent. Raises InvalidInput."""
    from muster.control.persist import plan_of
    from muster.service.event_inputs import inputs_of
    from muster.service.jobs import discard
    from muster.service.prepare import prepare_run
    from muster.service.present_code import has_changed, name_of_code, with_present_code

    inputs = inputs_of(plan_of(run))
    context = replace(context, submission=replace(context.submission, inputs=inputs))
    if not update_code:
        if has_changed(context, job, run):
            code = name_of_code(context, job, run)
            text = f"uses the code of {run.name}; {code} has changed since: --update-code uses it"
            notes = [*notes, text]
        return prepare_run(context, job, overrides, new_job=False, notes=notes)
    prepared = with_present_code(context, job, run, present_code)
    code = name_of_code(context, job, run)
    same = prepared.record.id == job.id
    text = f"{code} is the same as in {run.name}" if same else f"uses {code} as it is now"
    try:
        return prepare_run(
            *(context, prepared.record, overrides),
            spec=prepared.spec,
            new_job=prepared.new,
            notes=[*notes, text],
        )
    except MusterError:
        if prepared.new:
            discard(context, prepared.record)
        raise
