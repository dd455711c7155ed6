"""The roster of a run, for programs: OCI's cluster metadata file, and a host file.

OCI: job_run_cluster_metadata.json, a JSON array with one object for each node that has joined.
OCI's documentation spells the address `IpAddress`; the training driver that ships with ADS reads
`IPAddress`. Both are written.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List

from muster.node.files import overwrite_file, replace_file

#: Holds the path of the cluster metadata file.
VARIABLE = "CLUSTER_NODES_METADATA_FILE"

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
    """Write the file atomically, ordered by rank. Raises OSError."""
    replace_file(path, encode_roster(members))


def overwrite_roster(path: str, members: Iterable[Member]) -> None:
    """Write the file while no program reads it. Raises OSError."""
    overwrite_file(path, encode_roster(members))


def encode_roster(members: Iterable[Member]) -> bytes:
    """The content of the file."""
    ordered: List[Member] = sorted(members, key=lambda m: int(m["Rank"]))
    lines = [json.dumps(one) for one in ordered]  # with `indent`, it takes five times as long
    return ("[\n " + ",\n ".join(lines) + "\n]\n").encode()


def read_roster() -> List[Member]:
    """The nodes of this run by rank, in a process of a node; empty without a cluster metadata
    file. Raises OSError."""
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    with open(path) as file:
        members: List[Member] = json.load(file)
    return members


def hostfile_beside(cluster_file: str) -> str:
    """The path of the host file that belongs to a cluster metadata file."""
    return os.path.join(os.path.dirname(cluster_file), "hostfile")


def write_hostfile(cluster_file: str, addresses: Iterable[str], slots: int) -> None:
    """Write the nodes that a run starts with, by rank, in the format of Open MPI and DeepSpeed.

    slots: processes on each node. It is complete before any program starts, so that no program
    reads a part of it. Raises OSError.
    """
    replace_file(hostfile_beside(cluster_file), encode_hostfile(addresses, slots))


def encode_hostfile(addresses: Iterable[str], slots: int) -> bytes:
    """The content of the host file."""
    return "".join("%s slots=%d\n" % (address, slots) for address in addresses).encode()
