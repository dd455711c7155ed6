"""What a new run may not use, found before it starts: it would fail later otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from muster.engines.registry import engine_named
from muster.errors import InvalidInput, Problem
from muster.plan.principal import identity_of, uses_principal
from muster.service.context import Context
from muster.spec.secret_names import stored_secrets

if TYPE_CHECKING:
    from muster.iam.run_checks import RunChecks
    from muster.plan.model import PrincipalPlan, RunPlan
    from muster.spec.models import JobSpec


def check_access(
    context: Context, spec: JobSpec, plan: RunPlan, environ: Mapping[str, str]
) -> None:
    """Raises InvalidInput with each secret of its project that a run may not read, each bucket of
    the server that it may not mount as its job does, and each image that it may not use, of those
    that its engine's infrastructure pulls. environ: the submitter's."""
    problems = list(_images(context, plan))
    if (checks := run_checks(context, plan)) is not None:
        problems += _secrets(checks, spec)
        problems += _mounts(checks, plan) if uses_principal(environ) else ()
    if problems:
        raise InvalidInput(*problems)


def run_checks(context: Context, plan: RunPlan) -> RunChecks | None:
    """What policies refuse to a run of the caller; None if it may use all."""
    return None if plan.principal is None else _checks_of(context, plan, plan.principal)


def _checks_of(context: Context, plan: RunPlan, principal: PrincipalPlan) -> RunChecks:
    from muster.iam.run_checks import RunChecks  # runs of servers only

    ocid = identity_of(plan, principal).ocid
    policies, user = context.backend.policies, context.caller.user
    return RunChecks(context.store, policies, ocid, context.project, user)


def _images(context: Context, plan: RunPlan) -> Iterator[Problem]:
    """Policies are about the run also where its programs do not get the means to act as it."""
    principal = plan.principal or context.submission.principal
    if principal is None:
        return
    checks = _checks_of(context, plan, principal)
    for image in engine_named(plan.engine, context.home).images(plan):
        if why := checks.image(image):
            yield Problem("image", why)


def _secrets(checks: RunChecks, spec: JobSpec) -> Iterator[Problem]:
    for name, path in stored_secrets(spec).items():
        if why := checks.secret(name):
            yield Problem(path, why)


def _mounts(checks: RunChecks, plan: RunPlan) -> Iterator[Problem]:
    written: dict[str, bool] = {}
    for group in plan.groups:
        for mount in group.mounts:
            if mount.kind == "url":
                written[mount.source] = written.get(mount.source, False) or not mount.read_only
    for source, is_written in written.items():
        if why := checks.url(source, is_written):
            yield Problem("mounts", why)
