"""The JobSet of a run that is observed, in its cluster: creates it, finds it again, deletes it, and
keeps its record. What calls the API server is done by threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.kubernetes.access import namespace_of
from muster.engines.kubernetes.cluster import CannotCall, Cluster
from muster.engines.kubernetes.names import RUN
from muster.engines.kubernetes.observed_record import (
    PODS,
    RECORD,
    ObservedRecord,
    first_record,
    profile_of,
    to_apply,
)
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.remote.record import read_record, write_record

#: HTTP: an object of this name exists already.
_CONFLICT = 409


class NotApplied(Struct, frozen=True):
    """Why the JobSet was not applied."""

    error: CannotCall
    #: Whether it is known that it is not in the cluster, and would be refused again.
    is_final: bool


class JobSetOfRun:
    """See the module. Raises OSError if the JobSet of the run is not known."""

    def __init__(self, context: RunContext, profile: KubernetesProfile) -> None:
        self._context, self._profile, self._plan = context, profile, context.plan
        self._folder = context.home.run_dir(self._plan.run_id)
        #: None until it is about to be applied.
        self.record = read_record(self._folder.path / RECORD, ObservedRecord)
        #: None until `apply` was called.
        self.cluster: Cluster | None = None
        #: Whether it may be in the cluster though no answer has said so.
        self._may_exist = self.record is not None

    # --- in threads

    def apply(self) -> ObservedRecord | NotApplied:
        """Create it, unless it was adopted, or was created before. Returns its record with its
        uid."""
        try:
            record, environ = self.record, self._context.environ
            if record is None:
                record = first_record(self._plan, namespace_of(self._profile, environ))
                cluster = Cluster(profile_of(self._profile, record), environ)
                record = replace(record, cluster=cluster.connection.bind())
                self._write(record)  # first: it may exist from now on
            else:
                profile = profile_of(self._profile, record)
                cluster = Cluster(profile, environ, record.cluster)
            self.cluster = cluster
            if record.uid:
                return record
            self._may_exist = True
            made = _create(cluster, to_apply(self._plan, record), self._plan.run_id)
            return replace(record, uid=str(made["metadata"]["uid"]))
        except CannotCall as error:
            return self._found_anyway(error)

    def _found_anyway(self, error: CannotCall) -> ObservedRecord | NotApplied:
        """What has come of one that was not applied, or whose answer was lost."""
        record, cluster = self.record, self.cluster
        if not error.refused or not self._may_exist or record is None or cluster is None:
            return NotApplied(error, is_final=error.refused)
        try:
            metadata = cluster.read("JobSet", record.name).get("metadata") or {}
        except CannotCall as unread:
            return NotApplied(error, is_final=unread.is_unknown)
        if (metadata.get("labels") or {}).get(RUN) != self._plan.run_id:
            return NotApplied(error, is_final=True)
        return replace(record, uid=str(metadata["uid"]))

    def delete(self) -> CannotCall | None:
        """Delete it. Returns why that is not possible."""
        assert self.cluster is not None and self.record is not None
        try:
            self.cluster.delete("JobSet", self.record.name, self.record.uid)
        except CannotCall as error:
            return error
        return None

    def is_there(self) -> bool | None:
        """Whether it is in the cluster; None if that cannot be found out now."""
        assert self.cluster is not None and self.record is not None
        try:
            found = self.cluster.read("JobSet", self.record.name)
        except CannotCall as error:
            return False if error.is_unknown else None
        return (found.get("metadata") or {}).get("uid") == self.record.uid

    # --- its record

    def applied(self, record: ObservedRecord) -> None:
        """It is in the cluster. record: as `apply` has returned it."""
        self._write(record)
        (self._folder.path / PODS).mkdir(exist_ok=True)

    def left(self) -> None:
        """Nothing in the cluster is the run's any more."""
        if self.record is not None:
            self._write(replace(self.record, is_own=False))

    def _write(self, record: ObservedRecord) -> None:
        write_record(self._folder.path / RECORD, record)
        self.record = record

    def is_to_be_deleted(self, *, is_over: bool) -> bool:
        """Whether the run is to delete it when it ends. is_over: see `Observation`."""
        record = self.record
        if record is None or not record.uid or self.cluster is None or not record.is_own:
            return False
        return not (record.is_kept and is_over)


def _create(cluster: Cluster, manifest: Mapping[str, Any], run_id: str) -> Mapping[str, Any]:
    """Create the JobSet of a run, or find it, if an earlier answer was lost. Raises CannotCall,
    also if there is one of the name that belongs to another run, or to none."""
    try:
        return cluster.create(manifest)
    except CannotCall as error:
        if error.status != _CONFLICT:
            raise
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    where = f"{name} in namespace {namespace}"
    try:
        found = cluster.read("JobSet", name)
    except CannotCall as error:
        if error.is_unknown:  # it was deleted meanwhile: the name is free
            raise CannotCall(f"JobSet {where} was being deleted", refused=False) from None
        raise
    metadata = found.get("metadata") or {}
    owner = (metadata.get("labels") or {}).get(RUN)
    if owner == run_id:
        return found
    if metadata.get("deletionTimestamp") is not None:
        raise CannotCall(f"JobSet {where} is being deleted", refused=False)
    if owner:
        text = f"JobSet {where} belongs to run {owner}: wait for it, or `muster cancel {owner}`"
        raise CannotCall(text, refused=True)
    hint = f"kubectl delete jobset {name} -n {namespace}"
    text = f"there is a JobSet {where} already: adopt it, or delete it (`{hint}`)"
    raise CannotCall(text, refused=True)
