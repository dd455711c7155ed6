"""Restarts of a whole run by JobSet, while no Muster process drives the run. Pure.

A node program whose program has failed, and to which nobody answers for the profile's
`decision_window`, exits with `node.server.UNDECIDED`. That fails its Job (`manifest`), and JobSet
makes new pods for all nodes. JobSet's own counter says how often it has: in the status of the
JobSet, and in a label of each pod. A restart is the run's if its JobSet has all nodes of the run.
It is reported when none of the older pods is left: until then, their programs may run.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.engines.kubernetes.pod_facts import PodFacts
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.record import Allocation
from muster.plan.model import RunPlan
from muster.spec.formats.jobset.kubernetes_limits import MAX_INT32


def restarts_left(plan: RunPlan, profile: KubernetesProfile, before: int = 0) -> int:
    """How often JobSet may restart the run (JobSet: failurePolicy.maxRestarts).

    None of a run with arrays, whose replicas are independent, and of one with failure rules: they
    are about exit codes and reasons that JobSet does not know. before: how often other JobSets of
    the run have restarted it.
    """
    if profile.decision_window is None or plan.has_arrays or plan.policy.rules:
        return 0
    return max(0, min(plan.policy.max_restarts, MAX_INT32) - before)


class NativeRestarts:
    """What is known of the restarts of a run. reported: how many were reported, as recorded."""

    def __init__(self, reported: int) -> None:
        self.reported = reported
        #: The allocation whose JobSet has restarted the run, and how often the run was restarted
        #: with that: it is not reported yet.
        self.pending: tuple[Allocation, int] | None = None

    def learn(self, one: Allocation, restarts: int) -> None:
        """JobSet has restarted an allocation that often."""
        most = self.reported if self.pending is None else self.pending[1]
        if one.restarts + restarts > most:
            self.pending = one, one.restarts + restarts

    def has_older(self, pods: Iterable[PodFacts], jobset: str) -> bool:
        """Whether any of these pods is of the pending restart's JobSet, and older than it."""
        if self.pending is None:
            return False
        one, total = self.pending
        return any(pod.jobset == jobset and one.restarts + pod.restarts < total for pod in pods)

    def is_former(self, one: Allocation, pod: PodFacts) -> bool:
        """Whether a pod of an allocation was replaced by a restart that was reported."""
        return one.restarts + pod.restarts < self.reported

    def take(self) -> int:
        """How often the run was restarted with the pending restart, which is reported now."""
        assert self.pending is not None
        _, self.reported = self.pending
        self.pending = None
        return self.reported
