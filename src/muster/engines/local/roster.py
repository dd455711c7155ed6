"""The roster: nodes that join a run wait until the others can find them, then start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.engines.local.network.addresses import write_hosts, write_resolver
from muster.engines.local.nodes import LocalNode
from muster.errors import EngineError
from muster.node import messages
from muster.node.roster import member, overwrite_roster, write_hostfile, write_roster
from muster.plan.model import NodePlan, RunPlan
from muster.plan.names import service_names
from muster.storage.home import RunDir

if TYPE_CHECKING:
    from muster.engines.local.network.bridge import Bridge


class Roster:
    """The published roster of one run, and the network that its nodes are connected to."""

    def __init__(self, plan: RunPlan, run_dir: RunDir) -> None:
        self._plan = plan
        self._cluster_file = run_dir.cluster_file
        self._bridge = _create_bridge(plan, run_dir)
        self._uplink = self._bridge.uplink if self._bridge is not None else None
        self._joined: list[LocalNode] = []  # nodes that wait to start
        self._members: dict[int, dict[str, Any]] = {}  # by rank
        first = plan.policy.first_nodes()
        others = without_arrays(plan)
        addresses = [node.address for node in others if not first[node.rank].scaled_down]
        write_hostfile(str(self._cluster_file), addresses, plan.processes_per_node)
        _write_name_files(plan, run_dir)

    def join(self, node: LocalNode) -> None:
        """A node is ready to start; `start_joined` starts it."""
        self._joined.append(node)

    def forget(self, node: LocalNode) -> None:
        """A node has ended: do not start it."""
        self._joined = [other for other in self._joined if other is not node]

    def leave(self, ranks: Iterable[int]) -> None:
        """Remove these ranks from the roster."""
        removed = [rank for rank in ranks if self._members.pop(rank, None) is not None]
        if removed:
            write_roster(str(self._cluster_file), self._members.values())

    def start_joined(self) -> Sequence[LocalNode]:
        """Publish the nodes that have joined, connect them, and let them start their programs.
        Returns those to which that was sent.

        Waits for the uplink: it does nothing while that is starting.
        """
        if self._uplink is not None:
            self._uplink.step()
        if not self._joined or (self._uplink is not None and self._uplink.starting):
            return ()
        joined = [node for node in self._joined if node.report is None]
        self._joined = []
        members = [node for node in joined if not self._plan.group(node.plan.group).is_array]
        if any(node.ref.rank not in self._members for node in members):
            self._members |= {node.ref.rank: member_of(node.plan) for node in members}
            write_roster(str(self._cluster_file), self._members.values())
        for node in joined:
            if self._bridge is None or self._connect(self._bridge, node):
                node.started = True
                node.channel.send(messages.Start(node.incarnation))
        return joined

    def watched(self) -> int | None:
        """The descriptor to poll for the start of the uplink; None if none is starting."""
        return self._uplink.watched() if self._uplink is not None else None

    def timeout(self) -> float | None:
        """Seconds after which to call `start_joined` even if nothing happens; None for never."""
        return self._uplink.timeout() if self._uplink is not None else None

    def _connect(self, bridge: Bridge, node: LocalNode) -> bool:
        try:
            bridge.connect(node.slot, node.pid)
        except EngineError as error:
            node.fail_to_start(str(error))
            return False
        return True

    def reaped(self, pid: int) -> bool:
        """Handle the end of a child process. Returns whether it belonged to the network."""
        return self._bridge is not None and self._bridge.reaped(pid)

    def close(self) -> None:
        """Release the network."""
        if self._bridge is not None:
            self._bridge.close()


def member_of(node: NodePlan, rank: int | None = None) -> dict[str, Any]:
    """The entry of a node. rank: in its cluster; None: in the run."""
    given = node.rank if rank is None else rank
    return member(given, node.address, node.fqdn, node.group, node.node_id)


def write_cluster(plan: RunPlan, node: NodePlan, path: Path, *, again: bool = False) -> None:
    """Write the files of a replica of an array, to which the node belongs, and whose nodes start
    together: the roster, the host file, and what its nodes see as /etc/hosts.

    again: there are those of another replica in the same slots, which has ended.
    """
    nodes = plan.cluster(node)
    members = [member_of(node, rank) for rank, node in enumerate(nodes)]
    if again:
        overwrite_roster(str(path), members)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_roster(str(path), members)
        write_hostfile(str(path), [node.address for node in nodes], plan.processes_per_node)
    _write_hosts(plan, path, [*without_arrays(plan), *nodes], again=again)


def without_arrays(plan: RunPlan) -> Sequence[NodePlan]:
    """The nodes that all nodes find by their names. Those of an array find those of their own
    replica, too."""
    return [node for node in plan.nodes if not plan.group(node.group).is_array]


def _create_bridge(plan: RunPlan, run_dir: RunDir) -> Bridge | None:
    """The bridge between the nodes' interfaces; None if nodes share the machine's network."""
    if not plan.own_interfaces:
        return None
    from muster.engines.local.network.bridge import Bridge  # few runs have a network of their own

    return Bridge(run_dir.namespace if plan.network == "cluster" else None)


def _write_name_files(plan: RunPlan, run_dir: RunDir) -> None:
    """Write the files that nodes see as /etc/hosts and /etc/resolv.conf."""
    _write_hosts(plan, run_dir.cluster_file, without_arrays(plan))
    if plan.network == "cluster":
        write_resolver(run_dir.resolver)


def hosts_beside(cluster_file: Path) -> Path:
    """The file that the nodes of a cluster see as /etc/hosts."""
    return cluster_file.with_name("hosts")


def _write_hosts(
    plan: RunPlan, cluster_file: Path, nodes: Sequence[NodePlan], *, again: bool = False
) -> None:
    routed = plan.network == "cluster"
    path = hosts_beside(cluster_file)
    names, aliases = service_names(plan), plan.host_aliases
    write_hosts(path, nodes, names, aliases=aliases, routed=routed, again=again)
