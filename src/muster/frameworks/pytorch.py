"""PyTorch: torchrun's environment without torchrun, which starts two seconds faster; with
`elastic`, torchrun itself on every node.

`torch.distributed.init_process_group()` needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE;
LOCAL_RANK and the others are torchrun's contract with training scripts. Gloo binds to the address
of the host name, which is the node's own address.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 29400  # torchrun's for elastic training, and ADS's for all
# as torchrun does: several processes on a node should not start a thread per core each
_DEFAULTS = {"OMP_NUM_THREADS": "1"}
#: Seconds between two heartbeats of a torchrun.
_HEARTBEAT = 2
#: Timeout in seconds for the main node's torchrun to answer.
_TIMEOUT = 600


class PyTorchOptions(Struct, frozen=True, kw_only=True):
    """Options of PyTorch."""

    elastic: bool = False
    """Run torchrun on every node: the remaining ranks restart by themselves when a rank or node is
    lost, and further nodes may join."""
    min_nodes: Annotated[int, Meta(ge=1)] | None = None
    """Elastic: wait while there are fewer nodes. Default: the initial number of nodes."""
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    """Elastic: times that torchrun restarts its ranks after failures. Default: 3."""
    last_call_timeout: Annotated[int, Meta(ge=1)] | None = None
    """Elastic: seconds to wait for further nodes once there are min_nodes. Default: 5."""
    keep_alive_timeout: Annotated[int, Meta(ge=_HEARTBEAT)] | None = None
    """Elastic: seconds without a heartbeat after which a node is dropped. Default: 10."""


class PyTorch(Framework):
    name = "pytorch"
    summary = "torch.distributed over all nodes, as under torchrun; elastic as an option"
    Options = PyTorchOptions
    needs = (
        Need(str(DEFAULT_PORT), "main", "the ranks' rendezvous; elastic: that of the torchruns"),
        Need(
            "any", "every", "gloo or NCCL, between every two ranks; elastic: the ranks' rendezvous"
        ),
    )

    def has_main(self, options: PyTorchOptions) -> bool:
        return options.elastic  # it hosts the rendezvous

    def setup(self, cluster: Cluster) -> Setup:
        """torchrun's environment for every process, or torchrun.

        Raises InvalidInput for an invalid MASTER_PORT and for options that contradict each other.
        """
        options: PyTorchOptions = cluster.options
        if options.elastic:
            return _elastic(cluster, options)
        _check_static(options)
        return Setup(
            env={
                "MASTER_ADDR": "${roster.0.address}",
                "MASTER_PORT": "${port.master}",
                "RANK": "${process.rank}",
                "WORLD_SIZE": str(cluster.world_size),
                "LOCAL_RANK": "${process.local_rank}",
                "LOCAL_WORLD_SIZE": str(cluster.processes_per_node),
                "GROUP_RANK": "${node.rank}",
                "GROUP_WORLD_SIZE": str(cluster.size),
                "ROLE_RANK": "${process.rank}",
                "ROLE_WORLD_SIZE": str(cluster.world_size),
                "ROLE_NAME": "default",
                "TORCHELASTIC_RUN_ID": "${run.id}",
                "TORCHELASTIC_RESTART_COUNT": "${run.attempt}",
                "TORCHELASTIC_MAX_RESTARTS": "0",
            },
            defaults=_DEFAULTS,
            ports=(port_of(cluster, "master", DEFAULT_PORT, "MASTER_PORT"),),
        )


def prepared(cluster: Cluster, setup: Setup, script: str) -> Setup:
    """The setup with a shell script that runs in each rank before the program."""
    words = ("/bin/sh", "-c", f'{script}\nexec "$@"', "muster")
    roles = {role.name: setup.roles.get(role.name, RoleSetup()) for role in cluster.roles}
    return replace(
        setup,
        roles={name: replace(r, launcher=(*r.launcher, *words)) for name, r in roles.items()},
    )


def _check_static(options: PyTorchOptions) -> None:
    """Raises InvalidInput for options of elastic training."""
    hint = "add elastic: true, or leave it out"
    problems = [
        Problem(f"framework_options.{name}", "applies to elastic training only", hint)
        for name in PyTorchOptions.__struct_fields__
        if name != "elastic" and getattr(options, name) is not None
    ]
    if problems:
        raise InvalidInput(*problems)


def _elastic(cluster: Cluster, options: PyTorchOptions) -> Setup:
    least = options.min_nodes or cluster.size
    if least > cluster.size:
        text = f"min_nodes is {least}, but there are {cluster.size} nodes"
        raise InvalidInput(
            Problem("framework_options.min_nodes", text, "give fewer, or more nodes")
        )
    main = RoleSetup(
        launcher=_torchrun(cluster, options, least, hosts=True), processes=1, own_outputs=True
    )
    other = RoleSetup(
        launcher=_torchrun(cluster, options, least, hosts=False),
        processes=1,
        own_outputs=True,
        replaceable=True,
        fails_for_all=True,
    )
    return Setup(
        env={
            # PyTorch 2.13 reuses the first round's store, which has addresses of ranks that have
            # ended, and which nodes that join later do not have
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        defaults={
            **_DEFAULTS,
            # Muster limits the time; 30 s may be too short for a checkpoint
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "86400",
            # pass a checkpoint's signal to the ranks; older torchruns lack --signals-to-handle
            "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
        },
        ports=(port_of(cluster, "rendezvous", DEFAULT_PORT, "MASTER_PORT"),),
        roles=cluster.shared_out(main, other),
    )


def _torchrun(
    cluster: Cluster, options: PyTorchOptions, least: int, *, hosts: bool
) -> tuple[str, ...]:
    """torchrun's command up to the program. hosts: whether this node hosts the rendezvous."""
    restarts = 3 if options.max_restarts is None else options.max_restarts
    rendezvous = {
        # torchrun would guess from the endpoint's address, and takes 127.x for its own
        "is_host": str(hosts).lower(),
        "read_timeout": _TIMEOUT,
        "join_timeout": _TIMEOUT,
        "last_call_timeout": options.last_call_timeout or 5,
        "keep_alive_interval": _HEARTBEAT,
        "keep_alive_max_attempt": (options.keep_alive_timeout or 10) // _HEARTBEAT,
    }
    return (
        *("${python}", "-m", "muster.node.torchrun"),
        *("--nnodes", f"{least}:{cluster.most}"),
        *("--nproc-per-node", str(cluster.processes_per_node)),
        *("--max-restarts", str(restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-id", "${run.id}-${run.attempt}"),
        *("--rdzv-endpoint", "${roster.0.address}:${port.rendezvous}"),
        *("--rdzv-conf", ",".join(f"{name}={value}" for name, value in rendezvous.items())),
        *("--local-addr", "${node.address}"),
        "--no-python",
    )
