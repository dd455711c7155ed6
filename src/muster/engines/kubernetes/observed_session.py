"""The session of a run whose JobSet the cluster runs as it is: applies it, unless it was adopted,
watches it, and copies the logs of its pods. It drives no node.

What the cluster says waits in a queue, in its order: the end of a pod until its log was copied, a
little while at most, as the lines of a program say why it has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

from muster.engines.base import Report, RunContext
from muster.engines.kubernetes.changes import Away, Change, JobSetChanged, Listed, PodChanged
from muster.engines.kubernetes.cluster import CannotCall
from muster.engines.kubernetes.ended_pods import ENDED, add_ended, read_ended
from muster.engines.kubernetes.observation import Observation
from muster.engines.kubernetes.observed_facts import ObservedJobSet, ObservedPod, ReadObserved
from muster.engines.kubernetes.observed_jobset import JobSetOfRun, NotApplied
from muster.engines.kubernetes.observed_outputs import ObservedOutputs
from muster.engines.kubernetes.observed_pods import ObservedPods, recorded_ranks
from muster.engines.kubernetes.observed_record import ObservedRecord, jobset_name, workload_of
from muster.engines.kubernetes.places import Places
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.refusals import not_applied
from muster.engines.kubernetes.watcher import NEWS_TIMEOUT, Subscription, observed_watcher_of
from muster.engines.loop import RunLoop
from muster.engines.remote.cancel_orders import read_order
from muster.engines.remote.pauses import Pauses
from muster.lifecycle.events import (
    EngineEvent,
    NodeEnded,
    ResourcesLeft,
    RunRestarted,
    SessionClosed,
)
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import NodeRef
from muster.spec.formats.jobset.as_is import parts

#: Seconds until something is tried again that was not possible, or was refused.
_RETRY_PAUSE, _REFUSED_PAUSE = 5.0, 60.0
#: Seconds for which the end of a pod waits until its log was copied; and for which a session that
#: is left, or closes, waits for those that are being copied.
_LOG_TIMEOUT, _LEAVE_TIMEOUT = 10.0, 3.0
#: Seconds for which the pods of a JobSet that was deleted are waited for.
_GONE_TIMEOUT = 300.0
#: Seconds for which pods that a user ends by force are waited for, once their JobSet is deleted.
_FORCE_TIMEOUT = 10.0


class ObservedSession:
    """See `engines.base.DetachedSession`. Raises OSError if the JobSet of the run is not known."""

    def __init__(
        self, context: RunContext, profile: KubernetesProfile, loop: RunLoop, report: Report
    ) -> None:
        self._loop, self._report = loop, report
        self._plan = context.plan
        self._folder = context.home.run_dir(self._plan.run_id)
        self._parts = parts(workload_of(self._plan).manifest)
        self._places = Places(self._parts, recorded_ranks(self._folder))
        self._jobset = JobSetOfRun(context, profile)
        self._ended_file = self._folder.path / ENDED
        self._observation = Observation(
            *(self._places, context.alive, context.native_restarts), read_ended(self._ended_file)
        )
        self._outputs = ObservedOutputs(
            *(self._plan, self._folder, loop, self._places),
            *(context.attempt, context.native_restarts, self._drain),
        )
        self._pods = ObservedPods(self._folder, self._places)
        self._queue: deque[tuple[Change, float]] = deque()
        self._watching: Subscription | None = None
        self._reading: ReadObserved | None = None  # reads what is watched
        self._is_applying = self._is_pausing = self._is_deleting = False
        self._there: set[str] = set()  # the pods in the cluster, by uid
        self._pods_known = False  # whether these are all
        #: Whether the JobSet was deleted as the session closes, and its pods are waited for.
        self._is_leaving = False
        self._stops = False  # whether the JobSet is to be deleted as the run ends before it
        self._has_given_up = False  # whether it is left in the cluster
        self._ending = ""  # "close" or "leave"
        self._ending_at = 0.0
        self._closed = False
        self._watched: set[int] = set()
        self._pauses = Pauses(loop)
        self._participant = loop.add(self._step)
        if context.alive:
            for rank in (ref.rank for ref in context.alive):
                self._outputs.files.reopen(context.attempt)
                self._outputs.add_node(rank, context.attempt)
            if any(one.state is not NodeState.STARTING for one in context.alive.values()):
                self._begin()  # for those that are starting, `start` is called again
        self._take()

    # --- what the controller wants

    def start(self, attempt: int, nodes: Sequence[NodeRef]) -> None:
        """See `Session.start`."""
        self._outputs.open(attempt, self._observation.restarts)
        for ref in self._observation.start(nodes):
            self._outputs.add_node(ref.rank, attempt)
        self._begin()
        self._take()

    def signal(self, nodes: Sequence[NodeRef], number: int) -> None:
        """See `Session.signal`. There is nobody in the pods who could pass a signal on."""

    def stop(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.stop`. What the cluster does not end by itself ends with the JobSet."""
        self._observation.stop(nodes)
        if not self._observation.is_over:
            self._stops = True
            self._delete_if_unneeded()
        self._take()

    def kill(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.kill`. The cluster kills pods after their grace period, once their JobSet is
        deleted. If an earlier session was to stop these, that is still to be done."""
        if not self._stops:
            self.stop(nodes)

    def release(self, nodes: Sequence[NodeRef]) -> None:
        """See `Session.release`. No pod is kept."""

    def notified(self) -> None:
        """See `Session.notified`. What a user orders may come after the request to cancel."""
        if self._stops and read_order(self._folder.path).keep:
            self._delete_if_unneeded()
            self._take()

    # --- the JobSet

    def _begin(self) -> None:
        """Apply the JobSet and watch it, unless that is done, being done, or tried again soon."""
        if self._watching is not None or self._is_applying or self._is_pausing or self._ending:
            return
        if self._stops and self._jobset.record is None:
            return
        self._is_applying = True
        self._loop.in_thread(self._jobset.apply, self._applied)

    def _applied(self, answer: ObservedRecord | NotApplied) -> None:
        self._is_applying = False
        if self._closed:
            return
        if isinstance(answer, ObservedRecord):
            self._jobset.applied(answer)
            self._watch(answer)
        elif answer.is_final:
            self._jobset.left()
            self._observation.refuse(not_applied(answer.error, "rejected the JobSet"))
        elif not self._gives_up_by_force(f"it is not known to be deleted: {answer.error}"):
            why = not_applied(answer.error, "not accepted the JobSet yet")
            self._observation.wait(why)
            self._is_pausing = True
            self._pauses.after(_RETRY_PAUSE, self._begin_again)
        self._delete_if_unneeded()
        self._take()

    def _begin_again(self) -> None:
        self._is_pausing = False
        self._begin()

    def _watch(self, record: ObservedRecord) -> None:
        assert self._jobset.cluster is not None
        watcher = observed_watcher_of(self._jobset.cluster)
        self._reading = watcher.reading
        self._reading.expect(record.name, {one.name: one.container for one in self._parts})
        self._watching = watcher.subscribe(record.name, self._loop, self._seen)

    def _delete_if_unneeded(self) -> None:
        """Delete the JobSet if the run ends before it, once it is known whether there is one."""
        if not self._stops or self._is_applying or self._is_deleting or self._has_given_up:
            return
        if read_order(self._folder.path).keep:
            self._give_up(f"JobSet {jobset_name(self._plan)} is left in the cluster as it is")
            return
        record = self._jobset.record
        if record is None or not (record.uid or record.is_own):
            self._observation.never_applied(self._loop.now())
            return
        if not record.uid or self._jobset.cluster is None:  # an earlier session may have applied it
            self._begin()
            return
        self._is_deleting = True
        self._loop.in_thread(self._jobset.delete, self._deleted)

    def _deleted(self, error: CannotCall | None) -> None:
        self._is_deleting = False
        if self._closed:
            return
        if error is None:
            self._observation.cannot_delete("")
            if self._watching is not None:
                doubt = partial(self._watching.doubt, self._loop.now())
                self._pauses.after(NEWS_TIMEOUT, doubt)  # of the JobSet, which ends now
            if read_order(self._folder.path).force:
                why = "it was deleted, and its pods have not ended yet"
                self._pauses.after(_FORCE_TIMEOUT, partial(self._gives_up_by_force, why))
        elif not self._gives_up_by_force(str(error)):
            self._observation.cannot_delete(f"the JobSet cannot be deleted: {error}")
            # without the right to, somebody has to give it, or to delete it
            pause = _REFUSED_PAUSE if error.refused else _RETRY_PAUSE
            self._pauses.after(pause, self._delete_if_unneeded)
        self._take()

    def _gives_up_by_force(self, why: str) -> bool:
        """Leave the JobSet in the cluster if a user ends the run by force. why: it is there, as a
        phrase. Returns whether it is left."""
        if not (self._stops and read_order(self._folder.path).force):
            return False
        self._give_up(self._left_text("may be", why))
        return True

    def _left_text(self, verb: str, why: str) -> str:
        """Says that the JobSet is left in the cluster."""
        name = jobset_name(self._plan)
        record = self._jobset.record
        namespace = "" if record is None else f" -n {record.namespace}"
        hint = f"`kubectl delete jobset {name}{namespace}` deletes it"
        return f"JobSet {name} {verb} left in the cluster: {why}; {hint}"

    def _give_up(self, why: str) -> None:
        """Leave the JobSet in the cluster, and end the run without it. why: a sentence."""
        if not self._has_given_up and not self._ending:
            self._has_given_up = True
            self._observation.give_up(why)
            self._take()

    # --- what the cluster says

    def _seen(self, changes: Sequence[Change]) -> None:
        running: list[ObservedPod] = []
        self._places.see(
            pod
            for change in changes
            if isinstance(change, PodChanged) and isinstance(pod := change.pod, ObservedPod)
            if self._is_of_jobset(pod)
        )
        for change in changes:
            match change:
                case PodChanged(pod=ObservedPod() as pod) if self._is_of_jobset(pod):
                    running += [] if change.is_gone else [pod]
                    self._follow(pod)
                    (self._there.discard if change.is_gone else self._there.add)(pod.uid)
                case Listed(kind="Pod"):
                    self._pods_known = True
            self._queue.append((change, self._loop.now() + _LOG_TIMEOUT))
        self._pods.see(running)
        self._drain()
        if self._is_leaving:
            self._participant.notify()

    def _is_of_jobset(self, pod: ObservedPod) -> bool:
        record = self._jobset.record
        return record is not None and pod.is_of_job and pod.jobset_uid in ("", record.uid)

    def _follow(self, pod: ObservedPod) -> None:
        """Copy the log of a pod."""
        if not self._observation.is_spent(pod.uid):
            self._outputs.follow(pod, None if self._ending else self._jobset.cluster)

    def _drain(self) -> None:
        """Look at what the cluster has said, as far as it need not wait for logs."""
        if self._closed:
            return
        while self._queue:
            change, due = self._queue[0]
            if self._waits_for_log(change) and self._loop.now() < due:
                break
            self._queue.popleft()
            self._look_at(change)
        self._take()

    def _waits_for_log(self, change: Change) -> bool:
        """Whether a pod has ended whose log is being copied."""
        match change:
            case PodChanged(pod=ObservedPod() as pod) if pod.end is not None:
                return self._outputs.is_copying(pod)
        return False

    def _look_at(self, change: Change) -> None:
        observation, now = self._observation, self._loop.now()
        if self._has_given_up:
            return
        match change:
            case PodChanged(pod=ObservedPod() as pod) if self._is_of_jobset(pod):
                observation.see_pod(self._outputs.explained(pod), now)
                self._outputs.forget(pod, is_gone=change.is_gone)
            case JobSetChanged(jobset=ObservedJobSet() as jobset):
                record = self._jobset.record
                if record is not None and jobset.uid == record.uid:
                    observation.see_jobset(jobset, now, is_gone=change.is_gone)
            case Listed(kind="Pod"):
                observation.pods_listed(now)
            case Listed(kind="JobSet") if not observation.has_seen_jobset:
                self._look_for_jobset()
            case Away():
                observation.away("" if change.is_back else change.why)

    def _look_for_jobset(self) -> None:
        """The watcher has not seen the JobSet, which is shared and may be late: is it there?"""
        self._loop.in_thread(self._jobset.is_there, self._jobset_found)

    def _jobset_found(self, is_there: bool | None) -> None:
        if self._closed:
            return
        if is_there is None:
            self._pauses.after(_RETRY_PAUSE, self._look_for_jobset)
        elif not is_there and not self._observation.has_seen_jobset:
            self._observation.jobset_missing(self._loop.now())
            self._take()

    # --- events

    def _take(self) -> None:
        """Report what is new."""
        events = self._observation.take()
        add_ended(self._ended_file, self._observation.take_ended())
        for event in events:
            if isinstance(event, NodeEnded):
                self._outputs.remove_node(event.rank)
            elif isinstance(event, RunRestarted):
                self._outputs.restarted(event)
        if events:
            self._report(events)
        self._participant.notify()

    def _step(self, _ready: Mapping[int, int]) -> None:
        if self._closed:
            return
        self._outputs.files.record_growth()
        now = self._loop.now()
        if self._observation.due is not None and now >= self._observation.due:
            self._observation.settle(now)
            self._take()
        if self._queue and now >= self._queue[0][1]:
            self._drain()
        if self._outputs.has_complete_old:
            self._unwatch()  # some descriptors are about to be closed
            self._outputs.finish_old()
        if self._ending:
            self._advance_end()
        if not self._closed:
            self._wait()

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            self._participant.unwatch(descriptor)
        self._watched.clear()

    def _wait(self) -> None:
        descriptors, timeout = self._outputs.files.waits()
        for descriptor in self._watched.difference(descriptors):
            self._participant.unwatch(descriptor)
        for descriptor in descriptors:
            self._participant.watch(descriptor)
        self._watched = set(descriptors)
        due = [] if timeout is None else [self._loop.now() + timeout]
        if self._observation.due is not None:
            due.append(self._observation.due)
        if self._queue:
            due.append(self._queue[0][1])
        if self._ending:
            due.append(self._ending_at)
        self._participant.wake_at(min(due, default=None))

    # --- the end

    def close(self) -> None:
        """See `Session.close`. A JobSet that was adopted is left as it is, unless the run ends
        before it."""
        self._end("close")

    def leave(self) -> None:
        """See `DetachedSession.leave`."""
        self._end("leave")

    def _end(self, how: str) -> None:
        if self._ending:
            return
        self._ending, self._ending_at = how, self._loop.now() + _LEAVE_TIMEOUT
        if how == "leave":
            self._outputs.close()
        else:
            self._outputs.end_all()
        self._participant.notify()

    def _advance_end(self) -> None:
        """Close when logs are copied, and what is the run's is deleted."""
        if self._is_leaving:
            self._leave_when_gone()
            return
        is_late = self._loop.now() >= self._ending_at
        if (self._outputs.is_busy and not is_late) or self._is_applying:
            return
        self._ending_at = float("inf")
        self._outputs.close()
        if self._ending == "close" and self._is_left():
            if not self._is_deleting:
                self._is_deleting = True
                self._loop.in_thread(self._jobset.delete, self._closing_deleted)
            return
        if self._ending == "close" and not self._has_given_up:  # else `clean_up` tries it later
            self._jobset.left()
        self._finish()

    def _is_left(self) -> bool:
        """Whether something of the run is in the cluster that is to be deleted now."""
        is_over = self._observation.is_over
        return not self._has_given_up and self._jobset.is_to_be_deleted(is_over=is_over)

    def _leave_when_gone(self) -> None:
        """Finish when the pods of the JobSet are gone, which was deleted."""
        if self._pods_known and not self._there:
            self._jobset.left()
            self._finish()
        elif self._loop.now() >= self._ending_at:
            self._leave_behind(f"{len(self._there)} of its pods do not end")

    def _closing_deleted(self, error: CannotCall | None) -> None:
        if error is not None:
            self._leave_behind(str(error))
            return
        self._is_leaving = True
        self._ending_at = self._loop.now() + _GONE_TIMEOUT
        self._participant.notify()

    def _leave_behind(self, why: str) -> None:
        """The run does not wait longer for it; its record stays for `clean_up`."""
        self._report([ResourcesLeft(self._left_text("is", why))])
        self._finish()

    def _finish(self) -> None:
        self._closed = True
        if self._watching is not None:
            self._watching.close()
        if self._jobset.cluster is not None:
            self._jobset.cluster.close()
        if self._reading is not None and self._jobset.record is not None:
            self._reading.forget(self._jobset.record.name)
        self._pauses.close()
        self._unwatch()
        self._participant.close()
        events: list[EngineEvent] = [*self._observation.take(), SessionClosed()]
        self._report(events)

    def finish_logs(self) -> None:
        """See `Session.finish_logs`."""
        self._outputs.files.finish()
