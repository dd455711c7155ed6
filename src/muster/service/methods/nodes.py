"""The nodes of runs in progress: what they use, and, for `LocalNodes`, the way into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.permissions import Permission
from muster.service.caller_checks import CallerChecks
from muster.service.required_permissions import of_run

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.api.answers import Stacks
    from muster.engines.base import RunningNode
    from muster.node.counters import Counters
    from muster.storage.usage import NodeUsage


class NodeMethods(CallerChecks):
    """See `MusterAPI`."""

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def usage(self, run_id: str) -> dict[int, NodeUsage]:
        from muster.storage.usage import read_usage

        return read_usage(self.home.run_dir(run_id))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def counters(self, run_id: str) -> dict[int, Counters]:
        from muster.service.inside import counters

        return counters(self.context, self.store.runs.summary(run_id))

    @of_run(Permission.JOB_RUN_READ, "see runs")
    def stacks(self, run_id: str, ranks: Collection[int]) -> Stacks:
        from muster.service.inside import stacks

        return stacks(self.context, self.store.runs.summary(run_id), ranks)

    @of_run(Permission.NODE_ENTER, "enter nodes")
    def supervisor_of(self, run_id: str) -> int:
        """The pid of the process that drives a run in progress. See `service.inside`."""
        from muster.service.inside import supervisor_of

        return supervisor_of(self.context, self.store.runs.summary(run_id))

    @of_run(Permission.NODE_ENTER, "enter nodes")
    def running_node(self, run_id: str, rank: int | None) -> RunningNode:
        """A node of a run in progress; its only one if rank is None. See `service.inside`."""
        return self._running_node(run_id, rank)

    @of_run(Permission.NODE_ENTER, "enter nodes", action="runs.exec", in_node=True)
    def node_to_execute(self, run_id: str, rank: int, program: str, /) -> RunningNode:
        """As `running_node`. program: its name, without arguments, which may be secret."""
        return self._running_node(run_id, rank)

    @of_run(Permission.NODE_ENTER, "enter nodes", action="runs.forward", in_node=True)
    def node_to_forward(self, run_id: str, rank: int, port: str, /) -> RunningNode:
        """As `running_node`. port: `port 80`."""
        return self._running_node(run_id, rank)

    @of_run(Permission.NODE_ENTER, "enter nodes", action="runs.copy", in_node=True)
    def node_to_copy(self, run_id: str, rank: int, path: str, /) -> RunningNode:
        """As `running_node`. path: `from PATH` or `to PATH`."""
        return self._running_node(run_id, rank)

    @of_run(Permission.JOB_RUN_READ, "see runs", action="runs.copy", in_node=True)
    def record_copy(self, run_id: str, rank: int, path: str, /) -> None:
        """Record that files of a node that has ended are copied. path: as for `node_to_copy`."""

    def _running_node(self, run_id: str, rank: int | None) -> RunningNode:
        from muster.service.inside import running_node

        return running_node(self.context, self.store.runs.summary(run_id), rank)
