"""Why a run may not use what its job names: images, buckets, secrets. Each answer is a sentence
with the statement that is missing. OCI: a job run pulls its image, copies what it mounts and reads
secrets as itself. A run that does not act as itself is of the user of a machine, and may use all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from muster.errors import NotFound
from muster.iam.authority import authority_of_run
from muster.iam.current_policies import CurrentPolicies
from muster.iam.resources import (
    variables_of,
    variables_of_bucket,
    variables_of_repository,
    variables_of_secret,
)
from muster.identity import DEFAULT_PROJECT
from muster.images.reference import repository_name
from muster.permissions import COPY_BACK, COPY_IN, Decision, Permission
from muster.plan.principal import identity_of
from muster.unix_account import as_root

if TYPE_CHECKING:
    from muster.plan.model import RunPlan
    from muster.store.base import Store
    from muster.store.records import RunRecord
    from muster.store.resource_records import ResourceRecord

#: Indexes of policies that a process keeps.
_MOST_INDEXES = 8
_BUCKET = re.compile(r"oci://([^/@]+)@")


class RunChecks:
    """What policies refuse to one run. Threads may share it."""

    def __init__(
        self,
        store: Store,
        policies: CurrentPolicies,
        ocid: str,
        project: str,
        created_by: str,
        who: str = "runs of this job",
    ) -> None:
        """ocid: of the job run. project: the run's. created_by: the user who starts it. who: what
        sentences call the run."""
        self._store, self._project, self._who = store, project, who
        self._authority = authority_of_run(policies, ocid, project, created_by)

    def image(self, image: str) -> str:
        """Why it may not use an image, pulled already or not; "" if it may. Raises StoreError."""
        name = repository_name(image)
        on = variables_of_repository(name)
        missing = self._missing((Permission.REPOSITORY_READ,), self._project, on)
        what = f"image {image} cannot be used: {self._who} may not read the repository"
        return missing and f"{what} {name} in project {self._project}; {missing}"

    def url(self, url: str, written: bool) -> str:
        """Why it may not copy from a bucket of the server's object storage, or, if written, also to
        it; "" if it may, or if the URL names no such bucket. Raises StoreError."""
        found = _BUCKET.match(url)
        if found is None:
            return ""
        try:
            with as_root():
                bucket = self._store.buckets.get(found[1])
        except NotFound:
            return ""
        place, on = bucket.project, variables_of_bucket(bucket)
        missing = self._missing(COPY_BACK if written else COPY_IN, place, on)
        verb = "write" if written else "read"
        what = f"{self._who} may not {verb} objects of the bucket {found[1]}"
        return missing and f"{what} in project {place}; {missing}"

    def secret(self, name: str) -> str:
        """Why it may not read a secret of its project; "" if it may. Raises StoreError."""
        on = variables_of_secret(self._project, name)
        missing = self._missing((Permission.SECRET_BUNDLE_READ,), self._project, on)
        what = f"{self._who} may not read the secret {name} in project {self._project}"
        return missing and f"{what}; {missing}"

    def log(self, log: ResourceRecord, group: str) -> str:
        """Why it may not write its output to a log; "" if it may. group: the OCID of the log's
        group. Raises StoreError."""
        on = variables_of(log, group)
        missing = self._missing((Permission.LOG_CONTENT_PUSH,), log.project, on)
        what = f"{self._who} may not write to the log group {group}"
        return missing and f"{what}; {missing}"

    def _missing(
        self, permissions: Sequence[Permission], project: str, on: Mapping[str, str]
    ) -> str:
        """What to do about a permission that is missing; "" if none is. permissions: the one that
        takes the largest verb last, which a statement has to give."""

        def decide(permission: Permission) -> Decision:
            return self._authority.decide(permission, project, on)

        with as_root():  # the records are not the account's
            refused = [one for one in map(decide, permissions) if not one.allowed]
        if not refused:
            return ""
        return f"ask an admin of the project for this statement: {refused[-1].missing}"


def checks_of(store: Store, run: RunRecord, plan: RunPlan) -> RunChecks | None:
    """Those of a run that was recorded; None if it may use all."""
    principal = plan.principal
    if principal is None:
        return None
    aliases = ((principal.tenancy, DEFAULT_PROJECT), (principal.compartment, run.project))
    region = "" if principal.endpoint else principal.region
    policies = _policies(store, aliases, region)  # type: ignore[arg-type]  # any object has a hash
    policies.changed()  # perhaps by the server
    ocid, who = identity_of(plan, principal).ocid, f"run {run.name}"
    return RunChecks(store, policies, ocid, run.project, run.created_by, who)


@lru_cache(_MOST_INDEXES)
def _policies(store: Store, aliases: tuple[tuple[str, str], ...], region: str) -> CurrentPolicies:
    """The policies of a store, compiled once for all checks of a process until they change.
    aliases, region: see `CurrentPolicies.configure`."""
    found = CurrentPolicies(lambda: store)
    found.configure(dict(aliases), region)
    return found
