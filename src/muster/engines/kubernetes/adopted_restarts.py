"""Has the nodes of one run continue in the pods that JobSet has made for all of them: see
`native_restarts`."""

from __future__ import annotations

from muster.engines.kubernetes.lost_nodes import LostNodes
from muster.engines.kubernetes.nodes import Nodes
from muster.engines.kubernetes.record import Allocation
from muster.engines.kubernetes.run_parts import RunParts
from muster.lifecycle.status import Reason


class AdoptedRestarts:
    """Those of a run."""

    def __init__(self, run: RunParts, nodes: Nodes, lost: LostNodes) -> None:
        self._slots, self._jobsets, self._states = run.slots, run.jobsets, run.states
        self._contact, self._restarts = run.contact, run.restarts
        self._nodes, self._lost = nodes, lost

    def learn(self, one: Allocation, restarts: int) -> None:
        """JobSet has restarted an allocation that often: it says so itself, or a pod does."""
        if restarts and not self._slots.over and self._jobsets.restarts_run(one):
            self._restarts.learn(one, restarts)
            self.adopt()

    def adopt(self) -> None:
        """Have the nodes run in the pods that JobSet has made, if no older one is left."""
        pending = self._restarts.pending
        if pending is None or not self._slots.pods_known or not self._contact.is_ready:
            return
        one = self._jobsets.get(pending[0].number)
        if one is None or one.is_unneeded:
            self._restarts.pending = None
        elif one.number in self._states.doomed:
            self._lost.settle()
        elif not self._restarts.has_older(self._slots.every_pod(), self._jobsets.name(one)):
            self._nodes.report_restart(one)
            for slot in one.slots:
                self._nodes.expect(slot, one)

    def drop(self) -> None:
        """The run is over: nodes whose pods JobSet has replaced have ended, and no other starts."""
        if self._restarts.pending is None:
            return
        self._restarts.pending = None
        for slot, known in self._slots.items():
            if known.pod is None:
                self._nodes.look(slot)
            elif not self._slots.is_there(slot, known.pod):
                why = f"JobSet has replaced pod {known.pod.name}"
                self._lost.end(slot, known, why, Reason.NODE_LOST)
        self._lost.settle()
