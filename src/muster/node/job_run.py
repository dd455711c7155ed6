"""Serve a node of a job run of OCI Data Science: what the job's artifact runs on each of them.

The artifact is the node program with a description of the job (`DESCRIPTION`) in it. The service
unpacks it, or leaves it as it is beside the program of a container: Python runs both. All nodes of
a job run get the same, so each finds out which one it is: the service sets NODE_RANK and
NODE_GROUP_NAME, and lists the nodes in a file (CLUSTER_NODES_METADATA_FILE).

Ranks of the service are not those of Muster: which group has the first ones is not promised, only
that they are consecutive. So a node is the n-th of its group in the order of the service's ranks.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import time
from typing import TYPE_CHECKING, Any, List, Mapping, NamedTuple, Optional, Sequence

from muster.node.kept_server import keep_serving
from muster.node.serve import SETTINGS, TOKEN

if TYPE_CHECKING:
    from muster.node.tunnel_process import TunnelProcess

#: The file with the description of the job, in the package `muster.node` of the artifact.
DESCRIPTION = "job.json"
#: Seconds until the service has to list the nodes of a group, and between looks at the file.
_LISTED_TIMEOUT, _LISTED_PAUSE = 900.0, 0.5


class CannotStart(Exception):  # noqa: N818
    """The text says why."""


class Description(NamedTuple):
    """What the nodes of a job run are told."""

    #: The number of the servers (`Arrivals.server` of the supervisor).
    number: int
    #: Where nodes have their folders; `~` is the home directory there.
    folder: str
    #: Settings of all servers, see `node.serve.Settings`.
    settings: Mapping[str, Any]
    #: Node group -> the slots of its nodes, in order.
    groups: Mapping[str, Sequence[int]]
    #: Slot -> the settings of its server alone.
    nodes: Mapping[str, Mapping[str, Any]]
    #: Slot -> the token of its server.
    tokens: Mapping[str, str]
    #: The fields of `node.tunnel_process.Place`, if nodes reach the supervisor through a bucket.
    tunnel: Optional[Mapping[str, str]] = None


def main(version: str) -> int:
    """Serve this node until the run has left it. Returns the exit code. version: Muster's."""
    data = pkgutil.get_data("muster.node", DESCRIPTION)
    assert data is not None, "it is in the artifact"
    description = Description(**json.loads(data))
    try:
        slot = own_slot(description, os.environ)
    except CannotStart as error:
        sys.stderr.write("muster: this node cannot start: %s\n" % error)
        return 1
    folder = os.path.expanduser(
        "%s/%s-%d-%d"
        % (description.folder, description.settings["run_id"], description.number, slot)
    )
    settings = {**description.settings, **description.nodes[str(slot)], "rank": slot}
    try:
        tunnel = _open_tunnel(description)
    except OSError as error:
        sys.stderr.write("muster: this node cannot reach its supervisor: %s\n" % error)
        return 1
    if tunnel is not None:
        settings["supervisor"] = {**settings["supervisor"], "address": tunnel.address}
    told = {SETTINGS: json.dumps(settings), TOKEN: description.tokens[str(slot)]}
    code = keep_serving(folder, told, version, tunnel)
    if tunnel is not None:
        tunnel.close()
    return code


def _open_tunnel(description: Description) -> Optional[TunnelProcess]:
    """What carries the connections of the server; None: it reaches its supervisor itself. Raises
    OSError."""
    if description.tunnel is None:
        return None
    from muster.node.tunnel_process import Place, TunnelProcess  # which takes a while

    return TunnelProcess(Place(**description.tunnel).seen_from(os.environ))


def own_slot(description: Description, environ: Mapping[str, str]) -> int:
    """The slot of this node. Waits for the list of nodes if it is needed. Raises CannotStart."""
    every = [slot for slots in description.groups.values() for slot in slots]
    if len(every) == 1:
        return every[0]
    try:
        rank, group = int(environ["NODE_RANK"]), environ["NODE_GROUP_NAME"]
        slots = description.groups[group]
    except KeyError as error:
        text = "the service has not said which node it is: no variable or node group %s"
        raise CannotStart(text % error) from None
    except ValueError:
        raise CannotStart("NODE_RANK is no number: %.50r" % environ["NODE_RANK"]) from None
    if len(description.groups) == 1:
        index = rank
    else:
        index = _index_in_group(rank, group, len(slots), environ)
    if not 0 <= index < len(slots):
        text = "the service has given it rank %d, but group %s has %d nodes"
        raise CannotStart(text % (rank, group, len(slots)))
    return slots[index]


def _index_in_group(rank: int, group: str, size: int, environ: Mapping[str, str]) -> int:
    """The position of this node in its group. Raises CannotStart."""
    path = environ.get("CLUSTER_NODES_METADATA_FILE")
    if path is None:
        raise CannotStart("the service has not said where its nodes are listed")
    deadline = time.monotonic() + _LISTED_TIMEOUT
    while True:
        ranks = ranks_of(_read_list(path), group)
        if len(ranks) >= size:
            break
        if time.monotonic() > deadline:
            text = "%s lists %d of the %d nodes of group %s after %d s"
            raise CannotStart(text % (path, len(ranks), size, group, _LISTED_TIMEOUT))
        time.sleep(_LISTED_PAUSE)  # nothing tells when the service has written it
    try:
        return ranks.index(rank)
    except ValueError:
        raise CannotStart("%s does not list rank %d in group %s" % (path, rank, group)) from None


def ranks_of(listed: object, group: str) -> List[int]:
    """The service's ranks of the nodes of a group, in order, as far as they are listed. listed:
    what is in the file of the service."""
    nodes = listed if isinstance(listed, list) else []
    found = set()
    for node in nodes:
        if isinstance(node, dict) and node.get("NodeGroupName") == group:
            rank = str(node.get("Rank", ""))
            if rank.isdigit():
                found.add(int(rank))
    return sorted(found)


def _read_list(path: str) -> object:
    """What is in the file; nothing while it is missing, or is being written."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return []
