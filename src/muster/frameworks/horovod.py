"""Horovod with its gloo controller, without horovodrun, ssh and MPI.

Ranks are the nodes' own programs, which know who they are; on the main node there is the store at
which they meet. Elastic, Horovod's driver runs on the main node and starts ranks, through each
node's relay, on the nodes that are there.
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
from muster.frameworks.relays import NEED, relay_places, relay_port, relay_service

DEFAULT_PORT = 7071
_MAIN = "${roster.0.address}"
_PORT = "${port.rendezvous}"
_HELPER = ("${python}", "-m", "muster.node.needs", "horovod", "muster.node.horovod")

#: Only the node knows which interface is its own.
_ON_INTERFACE = (
    "/bin/sh",
    "-c",
    'test -n "$HOROVOD_GLOO_IFACE" || export HOROVOD_GLOO_IFACE="$JR_SOCKET_IFNAME"; exec "$@"',
    "horovod",
)


class HorovodOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Horovod can be told.

    elastic: Whether training goes on with those that live when ranks are lost, and with those that
        come back. The program has to be written for it (hvd.elastic.run).
    min_nodes: Elastic: fewer, and it waits for more. Default: 1.
    max_nodes: Elastic: so many take part at most. Default: all there are.
    timeout: Elastic: seconds it waits for min_nodes. Default: 600.
    cooldown: Elastic: seconds until a node on which a rank has failed is used again, twice as many
        after each further failure. Default: 10.
    """

    elastic: bool = False
    min_nodes: Annotated[int, Meta(ge=1)] = 1
    max_nodes: Annotated[int, Meta(ge=1)] | None = None
    timeout: Annotated[int, Meta(ge=1)] = 600
    cooldown: Annotated[int, Meta(ge=1)] = 10


class Horovod(Framework):
    name = "horovod"
    summary = "Horovod over gloo, without ssh; elastic if asked to be"
    Options = HorovodOptions
    needs = (
        Need(str(DEFAULT_PORT), "main", "the store at which ranks meet"),
        Need("any", "every", "gloo, between every two ranks"),
        Need("any", "every", "elastic: each rank hears there that nodes have come or gone"),
        NEED,
    )

    def has_main(self, options: HorovodOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """Who each rank is, and where it finds the others.

        Raises InvalidInput if there are fewer nodes than `min_nodes`, or more are wanted at least
        than at most.
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
        text = f"at least {options.min_nodes} nodes, of {cluster.size}, at most {most}"
        hint = "min_nodes is the smallest of the three"
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
