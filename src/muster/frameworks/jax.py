"""JAX: one computation over all processes; process 0 holds the coordinator they meet at.

Of itself `jax.distributed.initialize()` reads where that is, but neither how many processes there
are nor which one it is in: it asks whatever launcher it finds (jax._src.clusters, as of 0.10). It
finds Open MPI here, and no side of that but the variables below is ever used.
"""

from __future__ import annotations

from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 1234  # that of JAX's own guide


class Jax(Framework):
    name = "jax"
    summary = "jax.distributed over all nodes; initialize() needs no arguments"
    needs = (
        Need("1234", "main", "JAX's coordinator"),
        Need("any", "every", "gloo or NCCL, between every two processes"),
    )

    def setup(self, cluster: Cluster) -> Setup:
        """Who is who, in JAX's own words where it has any.

        Raises InvalidInput if JAX_COORDINATOR_PORT is set to something that is no port.
        """
        coordinator = "${roster.0.address}:${port.coordinator}"
        # JAX gives a process that Open MPI started one GPU: here it has its share of the node's
        role = RoleSetup(launcher=("${python}", "-m", "muster.node.jax"))
        return Setup(
            env={
                "JAX_COORDINATOR_ADDRESS": coordinator,
                "JAX_COORDINATOR_PORT": "${port.coordinator}",
                # JAX does not read these two; they are for scripts that pass them on
                "JAX_NUM_PROCESSES": str(cluster.world_size),
                "JAX_PROCESS_ID": "${process.rank}",
                "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{coordinator}",
                "OMPI_COMM_WORLD_SIZE": str(cluster.world_size),
                "OMPI_COMM_WORLD_RANK": "${process.rank}",
                "OMPI_COMM_WORLD_LOCAL_SIZE": str(cluster.processes_per_node),
                "OMPI_COMM_WORLD_LOCAL_RANK": "${process.local_rank}",
            },
            defaults={
                # it would listen on every address of the machine
                "JAX_COORDINATOR_BIND_ADDRESS": coordinator,
                # JAX's own by now; older versions have none, and no collectives on CPUs
                "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            },
            ports=(port_of(cluster, "coordinator", DEFAULT_PORT, "JAX_COORDINATOR_PORT"),),
            roles={one.name: role for one in cluster.roles},
        )
