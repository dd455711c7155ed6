"""MPI: the program runs as ranks on all nodes, started by MPICH's or Open MPI's own launcher on the
main node. There is no ssh: what a launcher wants to have run on another node, that node's relay
runs (`muster.node.relay`)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.relays import NEED, relay_places, relay_port, relay_service


class MpiOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What MPI can be told.

    flavour: Whose launcher starts the ranks. Default: what `mpiexec` on the main node is.
    slots: Open MPI: ranks that a node may have at once, those that the program spawns
        (MPI_Comm_spawn) included. MPICH has no limit. Default: processes_per_node.
    """

    flavour: Literal["auto", "mpich", "openmpi"] = "auto"
    slots: Annotated[int, Meta(ge=1)] | None = None


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
        """A relay on every node; the launcher in front of the program on the main node.

        Raises InvalidInput if there are fewer slots than ranks on a node.
        """
        options: MpiOptions = cluster.options
        each = str(cluster.processes_per_node)
        launcher = ["${python}", "-m", "muster.node.mpi", "--flavour", options.flavour]
        if options.slots is not None:
            if options.slots < cluster.processes_per_node:
                text = f"{options.slots} for {each} processes per node"
                hint = "there have to be as many, and one more for each rank that is spawned there"
                raise InvalidInput(Problem("framework_options.slots", text, hint))
            launcher += ["--slots", str(options.slots)]
        main = RoleSetup(
            services=(relay_service(),),
            launcher=(*launcher, "--per-node", each, "--patience", "${group.ready_timeout}", "--"),
            processes=1,
            env={"MUSTER_RELAYS": relay_places(cluster)},
        )
        serving = RoleSetup(services=(relay_service(),), program=False, processes=1, decides=False)
        return Setup(
            ports=(relay_port(),),
            roles=cluster.shared_out(main, serving),
        )
