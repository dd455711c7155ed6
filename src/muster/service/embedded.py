"""`MusterAPI` in this process: checks who calls, then carries out a use case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.permissions import Permission
from muster.service.methods.jobs import JobMethods
from muster.service.methods.nodes import NodeMethods
from muster.service.methods.notifications import NotificationMethods
from muster.service.methods.outputs import OutputMethods
from muster.service.methods.runs import RunMethods
from muster.service.methods.schedules import ScheduleMethods
from muster.service.methods.starts import StartMethods
from muster.service.required_permissions import requires

if TYPE_CHECKING:
    from muster.api.answers import CallerInfo, DiskItem, EngineInfo, Pruned
    from muster.engines.findings import Finding
    from muster.service.local_nodes import LocalNodes
    from muster.spec.models import JobSpec
    from muster.spec.shapes import Shape


class EmbeddedAPI(
    JobMethods,
    StartMethods,
    ScheduleMethods,
    NotificationMethods,
    RunMethods,
    NodeMethods,
    OutputMethods,
):
    """See `MusterAPI`, which documents the methods. Threads may share an object.

    The first method that finds or changes runs recovers those whose supervisor was killed.
    """

    @property
    def node_access(self) -> LocalNodes:
        from muster.service.local_nodes import LocalNodes

        return LocalNodes(self)

    def close(self) -> None:
        self._backend.close()

    def caller(self) -> CallerInfo:
        from muster.api.answers import CallerInfo

        caller = self._caller
        return CallerInfo(caller.user, caller.project, caller.rights, caller.token_id)

    def location(self) -> str:
        return str(self.home.root)

    def space_warning(self) -> str | None:
        if not self._caller.allows(Permission.ENGINE_INSPECT):  # a hint beside other answers
            return None
        return self._backend.space_warning() or None

    @requires(Permission.ENGINE_INSPECT, "see shapes")
    def shapes(self) -> list[Shape]:
        from muster.spec.shapes import catalogue

        return list(catalogue(self.home.shapes).values())

    @requires(Permission.ENGINE_INSPECT, "see engines")
    def engines(self) -> list[EngineInfo]:
        from muster.service.engines import engines

        return engines(self.home)

    @requires(Permission.ENGINE_USE, "check engines")
    def check_engine(self, name: str) -> list[Finding]:
        from muster.service.engines import check

        return check(name, self.home)

    @requires(Permission.ENGINE_USE, "adopt what engines run")
    def read_workload(self, engine: str, reference: str, namespace: str | None = None) -> JobSpec:
        from muster.service.engines import read_workload

        return read_workload(engine, reference, namespace, self.context)

    @requires(Permission.ENGINE_INSPECT, "see shapes")
    def shape(self, name: str) -> Shape:
        from muster.spec.shapes import find_shape

        return find_shape(name, self.home.shapes)

    @requires(Permission.JOB_RUN_INSPECT, "see what is on disk")
    def disk(self) -> tuple[DiskItem, ...]:
        from muster.service.disk import measure

        self.recover()
        return measure(self.context)

    @requires(Permission.JOB_RUN_DELETE, "delete runs and files", action="runs.prune")
    def prune(self, keep: int | None, older_than: float | None, *, dry_run: bool = False) -> Pruned:
        self._caller.require(Permission.JOB_RUN_DELETE, "delete runs", created_by="")
        from muster.service.prune import prune, retention_of

        self.recover()
        retention = retention_of(self.home, keep, older_than)
        return prune(self.context, retention, dry_run=dry_run)
