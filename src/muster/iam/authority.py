"""What somebody may do, as the policies say: the one place where both APIs get their decisions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from muster.caller import Chooser, Variables, always
from muster.iam.current_policies import CompiledPolicies, CurrentPolicies
from muster.iam.policies.decisions import INSTANCE, JOB_RUN, Access, Requester, allow_all
from muster.permissions import Decision, Permission
from muster.spec.ocids import ocid as ocid_of
from muster.spec.ocids import user_ocid

if TYPE_CHECKING:
    from muster.store.records import RunSummary


class PolicyAuthority(Struct, frozen=True):
    """See `caller.Authority`."""

    policies: CurrentPolicies
    requester: Callable[[CompiledPolicies], Requester]
    operation: str = ""
    """OCI's name of the operation that is asked for; "" in Muster's own API."""

    def allows(self, permission: Permission, project: str, on: Variables) -> bool:
        """See `Authority.allows`."""
        compiled = self.policies.get()
        return compiled.allowing(self._access(compiled, permission, project, on)) is not None

    def decide(self, permission: Permission, project: str, on: Variables) -> Decision:
        """See `Authority.decide`."""
        compiled = self.policies.get()
        return compiled.decide(self._access(compiled, permission, project, on), project)

    def chooser(self, permission: Permission, project: str) -> Chooser | None:
        """See `Authority.chooser`."""
        compiled = self.policies.get()
        found = compiled.choosers(self._access(compiled, permission, project, {}))
        if allow_all in found:
            return always
        if len(found) < 2:
            return found[0] if found else None
        return lambda on: any(one(on) for one in found)

    def reaches(self, project: str) -> bool:
        """See `Authority.reaches`."""
        compiled = self.policies.get()
        return compiled.reaches(self.requester(compiled), compiled.name_of(project))

    def _access(
        self, compiled: CompiledPolicies, permission: Permission, project: str, on: Variables
    ) -> Access:
        requester = self.requester(compiled)
        place = compiled.name_of(project)
        return Access(requester, permission, place, on, self.operation, time.time())


def authority_of_user(policies: CurrentPolicies, user: str) -> PolicyAuthority:
    """What a user may do."""
    return PolicyAuthority(policies, lambda compiled: compiled.user(user))


def run_requester(ocid: str, project: str, created_by: str) -> Requester:
    """A run as who asks. The parameters: as of `authority_of_run`."""
    return Requester(ocid, type=JOB_RUN, compartment=project, created_by=user_ocid(created_by))


def requester_of(run: RunSummary) -> Requester:
    """As `run_requester`, of a run that has a record."""
    return run_requester(ocid_of(JOB_RUN, run.id), run.project, run.created_by)


def authority_of_run(
    policies: CurrentPolicies, ocid: str, project: str, created_by: str
) -> PolicyAuthority:
    """What a run may do: as itself, whoever has started it. ocid: of the job run. created_by: the
    user who has started it."""
    run = run_requester(ocid, project, created_by)
    return PolicyAuthority(policies, lambda _: run)


def authority_of_instance(policies: CurrentPolicies, ocid: str, project: str) -> PolicyAuthority:
    """What a host may do that acts as itself. ocid: of the instance. project: the one that it is
    in."""
    host = Requester(ocid, type=INSTANCE, compartment=project)
    return PolicyAuthority(policies, lambda _: host)
