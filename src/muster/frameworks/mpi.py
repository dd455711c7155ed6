"""MPI: MPICH's or Open MPI's launcher on the main node starts the program as ranks on all nodes.

ssh is not used: the launcher's commands for other nodes go to their relays (`muster.node.relay`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.relay import NEED, relay_places, relay_port, relay_service


class MpiOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of MPI."""

    flavour: Literal["auto", "mpich", "openmpi"] = "auto"
    """The launcher's implementation. Default: that of `mpiexec` on the main node."""
    slots: Annotated[int, Meta(ge=1)] | None = None
    """Open MPI: maximum ranks on a node at a time, including those that the program spawns
    (MPI_Comm_spawn). MPICH has no limit. Default: processes_per_node."""


class Mpi(Framework):
    name = "mpi"
    summary = "an MPI program (mpi4py, C, Fortran) on all nodes, without ssh"
    Options = MpiOptions
    needs = (
        NEED,
        Need("any", "main", "mpiexec; each node's proxy, or daemon, connects to it"),
        Need("any", "every", "MPI's own traffic, between every two ranks"),
    )

    def has_main(self, options: MpiOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """A relay on every node; the launcher and the program on the main node.

        Raises InvalidInput if there are fewer slots than ranks on a node.
        """
        options: MpiOptions = cluster.options
        each = str(cluster.processes_per_node)
        launcher = ["${python}", "-m", "muster.node.mpi", "--flavour", options.flavour]
        if options.slots is not None:
            if options.slots < cluster.processes_per_node:
                text = f"{options.slots} for {each} processes per node"
                hint = "give at least as many, and one for each rank that the program spawns there"
                raise InvalidInput(Problem("framework_options.slots", text, hint))
            launcher += ["--slots", str(options.slots)]
        main = RoleSetup(
            services=(relay_service(),),
            launcher=(*launcher, "--per-node", each, "--timeout", "${group.ready_timeout}", "--"),
            processes=1,
            env={"MUSTER_RELAYS": relay_places(cluster)},
        )
        serving = RoleSetup(services=(relay_service(),), program=False, processes=1, decides=False)
        return Setup(
            ports=(relay_port(),),
            roles=cluster.shared_out(main, serving),
        )
