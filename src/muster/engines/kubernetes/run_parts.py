"""What all that deals with the hosts of one run shares: see `hosts`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from muster.engines.kubernetes.cluster import Cluster
from muster.engines.kubernetes.failed_starts import FailedStarts
from muster.engines.kubernetes.jobset_states import JobSetStates
from muster.engines.kubernetes.jobsets import JobSets
from muster.engines.kubernetes.native_restarts import NativeRestarts
from muster.engines.kubernetes.pod_contact import PodContact
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.kubernetes.slots import Slots
from muster.engines.loop import RunLoop
from muster.engines.remote.hosts import HostsOwner
from muster.plan.model import RunPlan


class RunParts(Struct, frozen=True, kw_only=True):
    """Those of a run."""

    plan: RunPlan
    profile: KubernetesProfile
    loop: RunLoop
    #: Gets all that happens to the hosts.
    owner: HostsOwner
    cluster: Cluster
    slots: Slots
    jobsets: JobSets
    states: JobSetStates
    contact: PodContact
    restarts: NativeRestarts
    starts: FailedStarts
    #: See `Subscription.doubt`.
    doubt: Callable[[float], object]
