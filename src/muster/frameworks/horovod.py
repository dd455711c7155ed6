"""Horovod with its gloo controller, without horovodrun, ssh and MPI.

The nodes' programs are the ranks and rendezvous at a store on the main node. With `elastic`,
Horovod's driver runs on the main node and starts ranks on all nodes through their relays.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import (
    Answers,
    Cluster,
    Framework,
    Need,
    Port,
    RoleSetup,
    Service,
    Setup,
)
from muster.frameworks.ports import port_of
from muster.frameworks.relay import NEED, relay_places, relay_port, relay_service

DEFAULT_PORT = 7071
_MAIN = "${roster.0.address}"
_PORT = "${port.rendezvous}"
_HELPER = ("${python}", "-m", "muster.node.requirements", "horovod", "muster.node.horovod")

#: The name of the node's interface is known only on the node.
_ON_INTERFACE = (
    "/bin/sh",
    "-c",
    'test -n "$HOROVOD_GLOO_IFACE" || export HOROVOD_GLOO_IFACE="$JR_SOCKET_IFNAME"; exec "$@"',
    "horovod",
)


class HorovodOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of Horovod."""

    elastic: bool = False
    """Continue training with the remaining ranks when some are lost, and with ranks that return.
    The program must support it (hvd.elastic.run)."""
    min_nodes: Annotated[int, Meta(ge=1)] = 1
    """Elastic: wait while there are fewer nodes. Default: 1."""
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    """Elastic: maximum number of nodes in use. Default: all."""
    timeout: Annotated[int, Meta(ge=1)] = 600
    """Elastic: seconds to wait for min_nodes. Default: 600."""
    cooldown: Annotated[int, Meta(ge=1)] = 10
    """Elastic: seconds until a node with a failed rank is used again; doubled after each further
    failure. Default: 10."""


class Horovod(Framework):
    name = "horovod"
    summary = "Horovod over gloo, without ssh; elastic as an option"
    Options = HorovodOptions
    needs = (
        Need(str(DEFAULT_PORT), "main", "the store of the ranks' rendezvous"),
        Need("any", "every", "gloo, between every two ranks"),
        Need("any", "every", "elastic: notifications of ranks about nodes that join or leave"),
        NEED,
    )

    def has_main(self, options: HorovodOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """The ranks' environment and the store, or Horovod's elastic driver.

        Raises InvalidInput if `min_nodes` exceeds the number of nodes or `max_nodes`.
        """
        options: HorovodOptions = cluster.options
        port = port_of(cluster, "rendezvous", DEFAULT_PORT, "HOROVOD_GLOO_RENDEZVOUS_PORT")
        if options.elastic:
            return _elastic(cluster, options, port)
        return _static(cluster, port)


def _static(cluster: Cluster, port: Port) -> Setup:
    each = cluster.processes_per_node
    hosts = ",".join(f"node-{rank}:{each}" for rank in range(cluster.size))
    here = Answers(_MAIN, _PORT)
    where = ("--address", _MAIN, "--port", _PORT)
    store = Service(
        name="rendezvous", command=(*_HELPER, "rendezvous", *where, "--hosts", hosts), ready=here
    )
    main = RoleSetup(services=(store,), launcher=_ON_INTERFACE)
    other = RoleSetup(gather=here, launcher=_ON_INTERFACE)
    return Setup(
        env={
            "HOROVOD_RANK": "${process.rank}",
            "HOROVOD_SIZE": str(cluster.world_size),
            "HOROVOD_LOCAL_RANK": "${process.local_rank}",
            "HOROVOD_LOCAL_SIZE": str(each),
            "HOROVOD_CROSS_RANK": "${node.rank}",
            "HOROVOD_CROSS_SIZE": str(cluster.size),
            "HOROVOD_HOSTNAME": "node-${node.rank}",
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": _MAIN,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": _PORT,
        },
        defaults={"OMP_NUM_THREADS": "1"},
        ports=(port,),
        roles=cluster.shared_out(main, other),
    )


def _elastic(cluster: Cluster, options: HorovodOptions, port: Port) -> Setup:
    most = options.max_nodes or cluster.size
    if not options.min_nodes <= min(most, cluster.size):
        text = f"{options.min_nodes}, but there are {cluster.size} nodes, and max_nodes is {most}"
        hint = "min_nodes must not exceed either"
        raise InvalidInput(Problem("framework_options.min_nodes", text, hint))
    each = cluster.processes_per_node
    numbers = {
        "--slots": each,
        "--min": options.min_nodes * each,
        "--max": most * each,
        "--start": min(most, cluster.size) * each,
        "--timeout": options.timeout,
        "--cooldown": options.cooldown,
    }
    words = [word for name, number in numbers.items() for word in (name, str(number))]
    driver = (*_HELPER, "elastic", "--address", _MAIN, "--port", _PORT, *words, "--")
    main = RoleSetup(
        services=(relay_service(),),
        launcher=(*_ON_INTERFACE, *driver),
        processes=1,
        env={"MUSTER_RELAYS": relay_places(cluster)},
    )
    serving = RoleSetup(
        services=(relay_service(),),
        program=False,
        processes=1,
        decides=False,
        replaceable=True,
    )
    return Setup(
        defaults={"OMP_NUM_THREADS": "1"},
        ports=(port, relay_port()),
        roles=cluster.shared_out(main, serving),
    )
