"""The credentials with which a run acts at the server that has started it. Other runs have none,
and import nothing for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.engines.base import RunContext
from muster.plan.model import RunPlan
from muster.storage.sync_process import Access

if TYPE_CHECKING:
    from muster.storage.run_credentials import RunCredentials


def credentials_of(context: RunContext) -> RunCredentials | None:
    """Those of a run, of which nodes get theirs when they start; None if it has none. Raises
    OSError, InvalidInput as `sealing.seal`."""
    if context.plan.principal is None:
        return None
    from muster.storage.run_credentials import COPIES, RunCredentials

    made = RunCredentials(context.home, context.plan, context.plan.principal)
    if has_copies(context.plan):
        made.issue(COPIES, here=())
    return made


def has_copies(plan: RunPlan) -> bool:
    """Whether a run mounts anything by URL."""
    return any(mount.kind == "url" for group in plan.groups for mount in group.mounts)


def slots_with_keys(plan: RunPlan) -> list[int]:
    """The slots of `RunCredentials` that a run uses."""
    from muster.storage.run_credentials import COPIES

    return [*([COPIES] if has_copies(plan) else []), *range(len(plan.nodes))]


def access_of_copies(context: RunContext) -> Access:
    """How processes reach what the run mounts by URL: with its credentials, unless the submitter's
    environment has others."""
    plan, environ = context.plan, context.environ
    public_only = not plan.allow_private_addresses
    if plan.principal is None:
        return Access(environ, public_only)
    from muster.plan.principal import for_copies, storage_address

    folder = str(context.home.run_dir(plan.run_id).principal)
    host, port = storage_address(plan.principal)
    used = for_copies(plan.principal, folder, environ)
    why_denied = None if used is environ else context.check_url
    return Access(used, public_only, f"{host}:{port}", why_denied)
