"""No framework: processes find each other through Muster's own environment variables."""

from __future__ import annotations

from muster.frameworks.base import Cluster, Framework, Setup


class Generic(Framework):
    name = "generic"
    summary = "any program; ranks, addresses and the cluster file in its environment"

    def setup(self, cluster: Cluster) -> Setup:
        """Nothing beyond what every node gets."""
        return Setup(
            env={
                "RANK": "${process.rank}",
                "LOCAL_RANK": "${process.local_rank}",
                "WORLD_SIZE": str(cluster.world_size),
                "LOCAL_WORLD_SIZE": str(cluster.processes_per_node),
            }
        )
