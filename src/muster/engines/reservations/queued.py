"""The session of a run that reserves resources: it is opened once the run has them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from muster.engines import admission
from muster.engines.admission import Reservation
from muster.engines.base import Report, RunContext, Session
from muster.engines.deferred import DeferredSession
from muster.engines.loop import RunLoop
from muster.engines.reservations.gpus import RunGpus
from muster.engines.reservations.table import Reservations, machine_capacity, needs_of, visible_gpus
from muster.lifecycle.events import RunAdmitted, RunQueued

#: Opens the session of a run that has these GPUs.
Open = Callable[[RunGpus], Session]


class QueuedSession(DeferredSession):
    """See `engines.base.Session`. While the run waits, nothing of it exists but its supervisor,
    which sleeps until a run ends that has what this one needs, or it is notified that another one
    was scaled down or given its GPUs."""

    def __init__(
        self, context: RunContext, loop: RunLoop, report: Report, open_session: Open
    ) -> None:
        super().__init__(report)
        self._open = open_session
        self._participant = loop.add(lambda _: self.notified())
        self._table = Reservations(context.home)
        self._capacity = machine_capacity()
        self._own = self._find_own(context)
        #: Descriptors that hang up when a run ends for which this one waits.
        self._watched: list[int] = []
        lacking = self._try_to_open()
        if lacking:
            report([RunQueued(admission.describe(lacking))])

    def look(self) -> None:
        """See `DeferredSession.look`."""
        self._try_to_open()

    def close(self) -> None:
        """See `Session.close`."""
        self._stop_watching()
        super().close()

    def _find_own(self, context: RunContext) -> Reservation:
        """The reservation made when the run was submitted; a new one if the table was deleted."""
        plan = context.plan
        found = self._table.find(plan.run_id)
        if found is not None:
            return found
        visible = visible_gpus(plan)
        needs = needs_of(plan, plan.policy.replicas_at_once, len(visible))
        return Reservation(plan.run_id, plan.run_name, time.time(), needs, visible=visible)

    def _try_to_open(self) -> list[admission.Shortage]:
        """Open the session if the run may start; else watch runs of which one has to end first.
        Returns what the run lacks."""
        self._stop_watching()
        while True:
            with self._table.change() as runs:
                own = runs.get(self._own.run_id, self._own)
                others = list(runs.values())
                lacking = [] if own.granted else admission.shortages(own, others, self._capacity)
                affected = [] if lacking else admission.affected_by_grant(own, others)
                if not lacking:
                    own = admission.grant(own, others)
                runs[own.run_id] = self._own = own
            self._table.wake(affected)
            if not lacking:
                self._report([RunAdmitted()])
                self._session = self._open(RunGpus(len(own.visible), self._gpus))
                return []
            watched = self._table.watch(admission.awaited(own, others, self._capacity))
            if watched is not None:
                self._watched = watched
                for descriptor in watched:
                    self._participant.watch(descriptor)
                return lacking

    def _gpus(self) -> Sequence[int]:
        """The GPUs that the run has by now: scaling it up may have added some."""
        return (self._table.find(self._own.run_id) or self._own).gpus

    def _stop_watching(self) -> None:
        for descriptor in self._watched:
            self._participant.unwatch(descriptor)
            os.close(descriptor)
        self._watched = []
