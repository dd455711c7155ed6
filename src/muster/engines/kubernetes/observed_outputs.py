"""The logs of an observed run: to which node and attempt the output of each pod belongs, and which
of its lines explain how the pod has ended."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.endings import End
from muster.engines.kubernetes.observed_facts import ObservedPod
from muster.engines.kubernetes.observed_logs import LogCopies, PodLog
from muster.engines.kubernetes.observed_record import pod_record
from muster.engines.kubernetes.places import Places
from muster.engines.logs import RunLogs
from muster.engines.loop import RunLoop
from muster.lifecycle.events import RunRestarted
from muster.lifecycle.status import Reason
from muster.node.exit_report import stderr_tail
from muster.plan.model import RunPlan
from muster.storage.home import RunDir


class ObservedOutputs:
    """See the module. Used in the thread of the run's loop.

    attempt, restarts: the newest attempt, and how often JobSet had restarted the run by then.
    copied: called when nothing more is copied of a log.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: RunDir,
        loop: RunLoop,
        places: Places,
        attempt: int,
        restarts: int,
        copied: Callable[[], object],
    ) -> None:
        self._plan, self._folder, self._places, self._done = plan, folder, places, copied
        #: The files, and their index.
        self.files = RunLogs(plan, folder)
        self._attempts: dict[int, int] = {}  # of the newest incarnations that are alive, by rank
        self._base = attempt, restarts
        self._copies = LogCopies(loop, self._copied)
        #: Logs that are being copied, or whose pods have not ended as was reported, and in which
        #: attempts they are. By uid.
        self._pod_logs: dict[str, tuple[PodLog, int]] = {}
        #: Pods whose ends were reported, and that are still in the cluster.
        self._ended_pods: set[str] = set()
        self._has_old = False  # whether logs of earlier attempts are not finished

    # --- nodes

    def open(self, attempt: int, restarts: int) -> None:
        """Nodes of an attempt start. restarts: by JobSet, until now."""
        self.files.open(attempt)
        if attempt > self._base[0]:
            self._base = attempt, restarts

    def add_node(self, rank: int, attempt: int) -> None:
        """An incarnation of a node writes to the logs of an attempt."""
        self._attempts[rank] = attempt
        self.files.add_node(attempt)

    def remove_node(self, rank: int) -> None:
        """The incarnation of a node that was alive has ended."""
        attempt = self._attempts.pop(rank, None)
        if attempt is not None:
            self.files.remove_node(attempt, rank)

    def restarted(self, event: RunRestarted) -> None:
        """JobSet has restarted all nodes: that is another attempt."""
        attempt, restarts = self._base
        attempt += event.restarts - restarts
        self._base = attempt, event.restarts
        self.files.open(attempt)
        self._has_old = True
        for rank in range(self._places.size):
            self.remove_node(rank)
            self.add_node(rank, attempt)

    # --- pods

    def follow(self, pod: ObservedPod, cluster: Cluster | None) -> None:
        """Copy the log of a pod from when it has one on. cluster: None if no other is begun."""
        if pod.uid in self._ended_pods:
            return
        log = self._log_of(pod)
        if log is None and cluster is not None:
            log = self._begin(pod, cluster)
        if log is not None and pod.end is not None:
            self._copies.end(log)

    def _log_of(self, pod: ObservedPod) -> PodLog | None:
        return self._pod_logs.get(pod.uid, (None, 0))[0]

    def _begin(self, pod: ObservedPod, cluster: Cluster) -> PodLog | None:
        has_log = pod.runs or pod.exit_code is not None
        rank = self._places.rank_of(pod) if has_log and self._plan.log_output else None
        attempt, restarts = self._base
        attempt += pod.restarts - restarts
        if rank is None or pod.restarts < restarts:
            return None
        if attempt > self.files.newest:
            self.files.open(attempt)
        self.files.reopen(attempt)
        outputs = self.files.assign_outputs(attempt, self._plan.node(rank))
        record = pod_record(self._folder, rank)
        log = PodLog(cluster, pod, outputs.processes[0][0], record)
        self._pod_logs[pod.uid] = log, attempt
        self._copies.add(log)
        return log

    def _copied(self, log: PodLog) -> None:
        if log.is_dropped:
            self._pod_logs.pop(log.uid, None)
        self._done()

    def is_copying(self, pod: ObservedPod) -> bool:
        """Whether lines of a pod may still come."""
        log = self._log_of(pod)
        return log is not None and not log.is_done

    def explained(self, pod: ObservedPod) -> ObservedPod:
        """The pod, whose end has the lines of its log that explain it."""
        log, end = self._log_of(pod), pod.end
        if end is None or end.reason is not Reason.EXIT or not pod.exit_code or log is None:
            return pod
        lines = stderr_tail(log.path, log.start, bool(pod.signal))
        text = "\n".join(one for one in (end.why, lines, log.problem) if one)
        return replace(pod, end=End(end.reason, text))

    def forget(self, pod: ObservedPod, *, is_gone: bool) -> None:
        """The end of a pod, if it has ended, was reported."""
        log = self._log_of(pod)
        if pod.end is not None:
            self._ended_pods.add(pod.uid)
            if log is not None and not log.is_done:
                log.is_dropped = True
            elif log is not None:
                del self._pod_logs[pod.uid]
        if is_gone:
            self._ended_pods.discard(pod.uid)

    # --- the end

    @property
    def has_complete_old(self) -> bool:
        """Whether there are logs of earlier attempts that can be finished now."""
        newest = self.files.newest
        return self._has_old and not any(
            not log.is_done and number < newest for log, number in self._pod_logs.values()
        )

    def finish_old(self) -> None:
        """Finish the logs of earlier attempts: descriptors of them are closed."""
        self._has_old = False
        self.files.finish_old_attempts()

    @property
    def is_busy(self) -> bool:
        """Whether logs are being copied."""
        return len(self._copies) > 0

    def end_all(self) -> None:
        """Copy what is there now, and no more."""
        self._copies.end_all()

    def close(self) -> None:
        """Copy nothing more."""
        self._copies.close()
