"""No framework: processes find each other through ranks, the main node's address and port, the
host file and the cluster file."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Framework, Need, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 29400


class Generic(Framework):
    name = "generic"
    summary = "any program; ranks, addresses and a host file in its environment"
    needs = (Need("29400", "main", "$MUSTER_MAIN_PORT, if the program listens there"),)

    def setup(self, cluster: Cluster) -> Setup:
        """Raises InvalidInput if MUSTER_MAIN_PORT is not a port."""
        return Setup(
            env={
                "RANK": "${process.rank}",
                "LOCAL_RANK": "${process.local_rank}",
                "WORLD_SIZE": str(cluster.world_size),
                "LOCAL_WORLD_SIZE": str(cluster.processes_per_node),
                "MUSTER_MAIN_ADDRESS": "${roster.0.address}",
                "MUSTER_MAIN_PORT": "${port.main}",
            },
            ports=(port_of(cluster, "main", DEFAULT_PORT, "MUSTER_MAIN_PORT"),),
        )
