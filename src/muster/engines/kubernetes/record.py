"""The record of a run's JobSets in the cluster, in the run's folder."""

from __future__ import annotations

from muster.engines.kubernetes.cluster_ref import ClusterRef
from muster.engines.remote import allocations
from muster.engines.remote.record import read_record
from muster.storage.home import RunDir

#: The file in the run's folder.
RECORD = "kubernetes.json"


class Allocation(allocations.Allocation, frozen=True):
    """Slots that share a JobSet. Recorded before it is applied: whoever finds it applies it again,
    which changes nothing."""

    #: Of the JobSet or, without JobSet in the cluster, of its headless Service; "": it was not
    #: applied, or that is not known.
    uid: str = ""
    #: What that is of: the kind of what owns all that it has. JobSet may be installed or removed
    #: meanwhile. "": that is not known.
    owner: str = ""
    #: Machines of the cluster that its pods avoid: those that were unfit when it was made.
    avoid: tuple[str, ...] = ()
    #: How often JobSet may restart it, if it has all nodes of the run; 0: it does not.
    max_restarts: int = 0
    #: How often JobSets of the run had restarted the run before it was made.
    restarts: int = 0


class Record(allocations.Record[Allocation], frozen=True):
    """The JobSets of a run."""

    #: Where they are; None: that was not recorded, as by earlier versions of Muster.
    cluster: ClusterRef | None = None
    #: Machines on which nodes have not passed their preflight checks.
    unfit: tuple[str, ...] = ()


def cluster_of(folder: RunDir) -> ClusterRef | None:
    """Where the JobSets of a run are; None if that was not recorded. Raises OSError."""
    record = read_record(folder.path / RECORD, Record)
    return None if record is None else record.cluster
