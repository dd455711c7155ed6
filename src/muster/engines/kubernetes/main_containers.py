"""The containers that run with that of a node: those of the role `main`. Kubernetes starts them
with the pod, and none of them again: once one has failed, its node needs another pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from msgspec.structs import replace

from muster.engines.kubernetes.endings import Crash
from muster.engines.kubernetes.failed_starts import FailedStarts
from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.loop import RunLoop
from muster.engines.remote.hosts import CompanionStart, HostsOwner
from muster.node.messages import ExitReport


class MainContainers:
    """Those of the node in a slot. See `remote.hosts.Companions`. names: theirs. logs: reads what
    they have written last. is_current: whether the slot still has the pod."""

    def __init__(
        self,
        slot: int,
        names: Collection[str],
        loop: RunLoop,
        owner: HostsOwner,
        logs: FailedStarts,
        is_current: Callable[[], bool],
    ) -> None:
        self._slot, self._loop, self._owner, self._logs = slot, loop, owner, logs
        self._names, self._is_current = names, is_current
        self._number: int | None = None  # of the incarnation
        self._waits = False  # whether its program has succeeded, and these are waited for
        self._runs = True  # whether one has not ended
        self._report: ExitReport | None = None  # of the first one that has failed
        self._is_reading = False

    def start(self, start: CompanionStart) -> None:
        """See `Companions`."""
        self._number, self._waits = start.number, False
        self._post(partial(self._owner.companions_started, self._slot, start.number))
        self._report_failure()

    def stop(self) -> None:
        """See `Companions`. They get no signal: they end with their pod."""
        if self._waits:
            self._end()

    def kill(self) -> None:
        """See `Companions`."""
        self.stop()

    def finish(self, *, succeeded: bool, keep: bool) -> None:
        """See `Companions`. For a restart in place, they go on."""
        self._waits = succeeded
        if not succeeded or not self._runs or self._report is not None:
            self._end()

    def see(self, pod: PodFacts) -> None:
        """Their pod has changed."""
        if self._report is not None or self._is_reading:
            return
        self._runs = any(name in self._names for name in pod.others)
        failure = next((one for one in pod.failed if one.container in self._names), None)
        if failure is not None:
            report = ExitReport(failure.code, failure.signal, failure.reason, failure.why)
            crashed = replace(pod, crash=Crash(failure.container, failure.text))
            done = partial(self._failed, report)
            self._is_reading = self._logs.read_log(self._slot, crashed, failure.why, done)
            if not self._is_reading:
                self._failed(report, failure.why)
        elif self._waits and not self._runs:
            self._end()

    def _failed(self, report: ExitReport, why: str) -> None:
        """One of them has failed."""
        self._is_reading = False
        self._report = report._replace(message=why)
        self._report_failure()

    def _report_failure(self) -> None:
        if self._report is None or self._number is None:
            return
        self._post(partial(self._owner.companions_failed, self._slot, self._number, self._report))
        if self._waits:
            self._end()

    def _end(self) -> None:
        if self._is_reading:
            self._waits = True  # until it is known why one has failed
            return
        self._waits = False
        assert self._number is not None, "it has started"
        self._post(partial(self._owner.companions_ended, self._slot, self._number))

    def _post(self, call: Callable[[], None]) -> None:
        """Later, as the owner may be calling."""
        self._loop.post(lambda: call() if self._is_current() else None)
