"""Who is in the run, for programs: the cluster metadata file, in OCI's format, and a host file.

OCI: job_run_cluster_metadata.json, a JSON array with one object for each node that has joined.
Documentation spells the address `IpAddress`; the training driver that ships with ADS reads
`IPAddress`. Both are written.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List

from muster.node.files import replace_file

Member = Dict[str, Any]


def member(rank: int, address: str, fqdn: str, group: str, node_id: str) -> Member:
    """One entry of the file."""
    return {
        "IpAddress": address,
        "IPAddress": address,
        "FQDN": fqdn,
        "Rank": str(rank),
        "NodeGroupName": group,
        "NodeId": node_id,
    }


def write_roster(path: str, members: Iterable[Member]) -> None:
    """Replace the file in one step, so that a reader never sees half of it."""
    ordered: List[Member] = sorted(members, key=lambda m: int(m["Rank"]))
    replace_file(path, (json.dumps(ordered, indent=1) + "\n").encode())


def hostfile_beside(cluster_file: str) -> str:
    """Where the host file is."""
    return os.path.join(os.path.dirname(cluster_file), "hostfile")


def write_hostfile(cluster_file: str, addresses: Iterable[str], slots: int) -> None:
    """The nodes that a run begins with, by rank, as Open MPI and DeepSpeed read them. slots:
    processes on each. Whole before any program starts, so that none takes a part for all."""
    lines = ["%s slots=%d\n" % (address, slots) for address in addresses]
    replace_file(hostfile_beside(cluster_file), "".join(lines).encode())
