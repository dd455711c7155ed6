"""Runs: what they are, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.permissions import Permission
from muster.service import resources
from muster.service.caller_checks import CallerChecks
from muster.service.readable import require
from muster.service.required_permissions import of_one, of_run, requires, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from muster.api.answers import ClusterAccess
    from muster.api.replica_table import ReplicaTable, TableQuery
    from muster.spec.override_models import RunOverrides
    from muster.spec.overrides import Changes
    from muster.store.records import NodeFilter, NodeRecord, RunFilter, RunRecord, RunSummary


class RunMethods(CallerChecks):
    """See `MusterAPI`."""

    @of_one(run_of, Permission.JOB_RUN_READ, "see runs")
    def run(self, text: str) -> RunRecord:
        self.recover()
        return self.store.runs.find(self._caller.project, text)

    @of_one(run_of, Permission.JOB_RUN_READ, "see runs")
    def find_run(self, text: str) -> RunSummary:
        self.recover()
        run_id = self.store.runs.find_id(self._caller.project, text)
        return self.store.runs.summary(run_id)

    @requires(Permission.JOB_RUN_INSPECT, "see runs", some=True)
    def runs(self, chosen: RunFilter) -> list[RunSummary]:
        from muster.service.run_details import with_waiting

        self.recover()
        project, listing = self._caller.project, self.store.runs.listing

        def page(last: RunSummary | None) -> list[RunSummary]:
            before = chosen.before if last is None else last.position
            return listing(project, replace(chosen, before=before))

        needed = Permission.JOB_RUN_INSPECT
        found = self._visible(needed, resources.of_runs, page, chosen.limit)
        return with_waiting(self.home, found)

    @requires(Permission.JOB_RUN_READ, "see runs", some=True)
    def run_records(self, chosen: RunFilter) -> list[RunRecord]:
        self.recover()

        def page(_: RunRecord | None) -> list[RunRecord]:
            return self.store.runs.records(self._caller.project, chosen)

        return self._visible(Permission.JOB_RUN_READ, resources.of_runs, page, None)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def nodes(self, run_id: str, chosen: NodeFilter | None = None) -> list[NodeRecord]:
        return list(self.store.runs.nodes(run_id, chosen))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def shown_nodes(self, run_id: str) -> list[NodeRecord]:
        from muster.service.run_details import shown_nodes

        return shown_nodes(self.store, self.store.runs.get(run_id))

    @requires(Permission.JOB_RUN_READ, "see runs", some=True)
    def replica_table(self, run_ids: Sequence[str], query: TableQuery) -> ReplicaTable:
        from muster.service.replica_table import replica_table

        self.recover()
        runs = [self._check_run(run_id) for run_id in run_ids]
        for one in resources.of_runs(self._caller, self.store, runs):
            require(self._caller, Permission.JOB_RUN_READ, "see runs", one)
        return replica_table(self.context, [self.store.runs.get(each) for each in run_ids], query)

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def restarts(self, run_id: str) -> int:
        return self.store.events.count(run_id, "restart")

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def why(self, run_id: str) -> list[str]:
        from muster.service.run_details import why

        return why(self.context, self.store.runs.get(run_id))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def waiting_for(self, run_id: str) -> str:
        from muster.service.run_details import waiting_for

        return waiting_for(self.home, self.store.runs.summary(run_id))[0]

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def replicas(self, run_id: str) -> dict[str, int]:
        from muster.service.run_details import replicas

        return replicas(self.store.runs.get(run_id))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def limits(self, run_id: str) -> dict[str, str]:
        from muster.service.run_details import limits

        return limits(self.home, self.store.runs.get(run_id))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def endpoints(self, run_id: str) -> dict[str, str]:
        from muster.storage.run_files import read_endpoints

        return read_endpoints(self.home.run_dir(run_id))

    @of_run(Permission.NODE_ENTER, "connect to nodes", action="runs.connect")
    def cluster_access(self, run_id: str) -> ClusterAccess:
        from muster.service.run_details import cluster_access

        return cluster_access(self.context, self.store.runs.get(run_id))

    @of_run(Permission.JOB_RUN_UPDATE, "cancel runs", action="runs.cancel")
    def cancel(
        self,
        run_id: str,
        why: str = "canceled by user",
        *,
        force: bool = False,
        keep: bool = False,
    ) -> None:
        from muster.service.requests import cancel

        cancel(self.context, run_id, why, force=force, keep=keep)

    @of_run(Permission.JOB_RUN_UPDATE, "adopt runs", action="runs.adopt")
    def adopt(self, run_id: str) -> RunRecord:
        from muster.service.recovery import adopt

        adopt(self._backend, run_id)
        return self.store.runs.get(run_id)

    @of_run(Permission.JOB_RUN_UPDATE, "suspend runs", action="runs.suspend")
    def suspend(self, run_id: str, why: str = "suspended by user") -> RunRecord:
        from muster.service.requests import suspend

        return suspend(self.context, run_id, why)

    @of_run(Permission.JOB_RUN_UPDATE, "resume runs")
    def prepare_resume(self, run_id: str, changes: Changes) -> RunOverrides:
        from muster.service.requests import reviewed_overrides

        self._check_changes(run_id, "resume runs with changes")
        return reviewed_overrides(self.context, self.store.runs.get(run_id), changes)

    @of_run(Permission.JOB_RUN_UPDATE, "resume runs", action="runs.resume")
    def resume(
        self,
        run_id: str,
        overrides: RunOverrides | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> RunRecord:
        from muster.service.requests import resume

        if overrides is not None or environ:
            self._check_changes(run_id, "resume runs with changes")
        return resume(self.context, run_id, overrides, environ)

    def _check_changes(self, run_id: str, what: str) -> None:
        """Raises NotPermitted unless the caller may choose what a run runs: its programs act as who
        has created it, as those do that are executed in its nodes."""
        run = self.store.runs.summary(run_id)
        if run.created_by != self._caller.user:
            on = resources.of_run(self._caller, self.store, run)
            require(self._caller, Permission.NODE_ENTER, what, on)
            self._check_not_the_servers(run, what)

    @of_run(Permission.JOB_RUN_UPDATE, "scale runs", action="runs.scale")
    def scale(self, run_id: str, group: str, replicas: int, why: str = "by user") -> RunRecord:
        from muster.service.requests import scale

        return scale(self.context, run_id, group, replicas, why)

    @of_run(Permission.JOB_RUN_DELETE, "delete runs", action="runs.delete")
    def delete(self, run_id: str) -> None:
        from muster.service.delete import delete

        delete(self.context, run_id)
