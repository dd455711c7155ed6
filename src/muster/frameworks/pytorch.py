"""PyTorch: what torchrun gives its workers, without torchrun (two seconds faster to start); or,
elastic, torchrun itself on every node.

`torch.distributed.init_process_group()` needs MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE;
LOCAL_RANK and its companions are torchrun's contract with training scripts. Gloo binds to what
the host name resolves to: on a Muster node that is the node's own address.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Cluster, Framework, Need, RoleSetup, Setup
from muster.frameworks.ports import port_of

DEFAULT_PORT = 29400  # torchrun's for elastic training, and ADS's for all
# torchrun sets one thread a process where the owner says nothing: more processes than cores
# otherwise each start a thread pool of their own
_DEFAULTS = {"OMP_NUM_THREADS": "1"}
#: Seconds between two signs of life of a torchrun.
_SIGN_OF_LIFE = 2
#: Seconds that nodes wait for the main node's torchrun to answer.
_PATIENCE = 600


class PyTorchOptions(Struct, frozen=True, kw_only=True):
    """What PyTorch can be told.

    elastic: Whether torchrun runs on every node and starts the ranks, so that those that live
        begin again by themselves when a rank or node is lost, and others may join.
    min_nodes: Elastic: with fewer, training waits for more. Default: all there are at first.
    max_restarts: Elastic: so often a torchrun starts its ranks again because some have failed.
        Default: 3.
    last_call_timeout: Elastic: seconds that min_nodes wait for further ones. Default: 5.
    keep_alive_timeout: Elastic: seconds after the last sign of life of a node until the others do
        without it. Default: 10.
    """

    elastic: bool = False
    min_nodes: Annotated[int, Meta(ge=1)] | None = None
    max_restarts: Annotated[int, Meta(ge=0)] | None = None
    last_call_timeout: Annotated[int, Meta(ge=1)] | None = None
    keep_alive_timeout: Annotated[int, Meta(ge=_SIGN_OF_LIFE)] | None = None


class PyTorch(Framework):
    name = "pytorch"
    summary = "torch.distributed over all nodes, as under torchrun; elastic if asked to be"
    Options = PyTorchOptions
    needs = (
        Need(str(DEFAULT_PORT), "main", "where the ranks meet; elastic: the nodes' torchruns"),
        Need("any", "every", "gloo or NCCL, between every two ranks; elastic: where ranks meet"),
    )

    def has_main(self, options: PyTorchOptions) -> bool:
        return options.elastic  # it hosts what the others meet at

    def setup(self, cluster: Cluster) -> Setup:
        """torchrun's environment for every process, or torchrun.

        Raises InvalidInput if MASTER_PORT is set to something that is no port, and on options that
        contradict each other.
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
    """The same, where a shell does something in each rank's place before it becomes the program."""
    words = ("/bin/sh", "-c", f'{script}\nexec "$@"', "muster")
    roles = {role.name: setup.roles.get(role.name, RoleSetup()) for role in cluster.roles}
    return replace(
        setup,
        roles={name: replace(r, launcher=(*r.launcher, *words)) for name, r in roles.items()},
    )


def _check_static(options: PyTorchOptions) -> None:
    """Raises InvalidInput if something is said that only means something when elastic."""
    hint = "add elastic: true, or leave it out"
    problems = [
        Problem(f"framework_options.{name}", "means something to elastic training only", hint)
        for name in PyTorchOptions.__struct_fields__
        if name != "elastic" and getattr(options, name) is not None
    ]
    if problems:
        raise InvalidInput(*problems)


def _elastic(cluster: Cluster, options: PyTorchOptions) -> Setup:
    least = options.min_nodes or cluster.size
    if least > cluster.size:
        text = f"{least} nodes are wanted at least, and there are {cluster.size}"
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
            # PyTorch 2.13: torchruns keep the first round's store, in which a later round finds
            # the addresses of ranks that are gone, and a node that comes later finds none
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
        defaults={
            **_DEFAULTS,
            # Muster says when the time is over; 30 s might not do for a checkpoint
            "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "86400",
            # --signals-to-handle, which older torchruns do not know: a checkpoint's signal goes on
            # to the ranks
            "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2",
        },
        ports=(port_of(cluster, "rendezvous", DEFAULT_PORT, "MASTER_PORT"),),
        roles=cluster.shared_out(main, other),
    )


def _torchrun(
    cluster: Cluster, options: PyTorchOptions, least: int, *, hosts: bool
) -> tuple[str, ...]:
    """torchrun, up to the program. hosts: whether this node hosts what all meet at."""
    restarts = 3 if options.max_restarts is None else options.max_restarts
    meeting = {
        # left to itself, it looks whether the endpoint's host is its own: 127.x always is
        "is_host": str(hosts).lower(),
        "read_timeout": _PATIENCE,
        "join_timeout": _PATIENCE,
        "last_call_timeout": options.last_call_timeout or 5,
        "keep_alive_interval": _SIGN_OF_LIFE,
        "keep_alive_max_attempt": (options.keep_alive_timeout or 10) // _SIGN_OF_LIFE,
    }
    return (
        *("${python}", "-m", "muster.node.torchrun"),
        *("--nnodes", f"{least}:{cluster.most}"),
        *("--nproc-per-node", str(cluster.processes_per_node)),
        *("--max-restarts", str(restarts)),
        *("--rdzv-backend", "c10d", "--rdzv-id", "${run.id}-${run.attempt}"),
        *("--rdzv-endpoint", "${roster.0.address}:${port.rendezvous}"),
        *("--rdzv-conf", ",".join(f"{name}={value}" for name, value in meeting.items())),
        *("--local-addr", "${node.address}"),
        "--no-python",
    )
