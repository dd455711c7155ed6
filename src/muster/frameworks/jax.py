"""JAX: one computation over all processes, with a coordinator in process 0.

`jax.distributed.initialize()` reads the coordinator's address from a variable, but the number of
processes and its own number only from a launcher it detects (jax._src.clusters, as of 0.10). The
variables below make it detect Open MPI; nothing else of Open MPI is used.
"""

from __future__ import annotations

from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 1234  # as in JAX's guide


class Jax(Framework):
    name = "jax"
    summary = "jax.distributed over all nodes; initialize() needs no arguments"
    needs = (
        Need("1234", "main", "JAX's coordinator"),
        Need("any", "every", "gloo or NCCL, between every two processes"),
    )

    def setup(self, cluster: Cluster) -> Setup:
        """The coordinator's address and the processes' numbers.

        Raises InvalidInput if JAX_COORDINATOR_PORT is not a port.
        """
        coordinator = "${roster.0.address}:${port.coordinator}"
        # JAX gives a process of Open MPI one GPU; muster.node.jax gives it its share of the node's
        role = RoleSetup(launcher=("${python}", "-m", "muster.node.jax"))
        return Setup(
            env={
                "JAX_COORDINATOR_ADDRESS": coordinator,
                "JAX_COORDINATOR_PORT": "${port.coordinator}",
                # not read by JAX, but by scripts that pass them to it
                "JAX_NUM_PROCESSES": str(cluster.world_size),
                "JAX_PROCESS_ID": "${process.rank}",
                "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{coordinator}",
                "OMPI_COMM_WORLD_SIZE": str(cluster.world_size),
                "OMPI_COMM_WORLD_RANK": "${process.rank}",
                "OMPI_COMM_WORLD_LOCAL_SIZE": str(cluster.processes_per_node),
                "OMPI_COMM_WORLD_LOCAL_RANK": "${process.local_rank}",
            },
            defaults={
                # the default is every address of the machine
                "JAX_COORDINATOR_BIND_ADDRESS": coordinator,
                # JAX's default now; older versions have no collectives on CPUs without it
                "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
            },
            ports=(port_of(cluster, "coordinator", DEFAULT_PORT, "JAX_COORDINATOR_PORT"),),
            roles={one.name: role for one in cluster.roles},
        )
