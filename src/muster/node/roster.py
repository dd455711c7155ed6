"""The cluster metadata file: who is in the run, in OCI's format.

OCI: job_run_cluster_metadata.json, a JSON array with one object for each node that has joined.
Documentation spells the address `IpAddress`; the training driver that ships with ADS reads
`IPAddress`. Both are written.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterable, List

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
    part = path + ".part"
    with open(part, "w") as file:
        json.dump(ordered, file, indent=1)
        file.write("\n")
    os.replace(part, path)
