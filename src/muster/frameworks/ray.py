"""Ray: a head beside the owner's program on the main node, a worker on every other; the program
finds the cluster in `RAY_ADDRESS`.

`ray.init()` connects there by itself. Ray's workers come and go while the others live; of the head
there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import (
    Answers,
    Cluster,
    Framework,
    Joined,
    Need,
    Port,
    RoleSetup,
    Service,
    Setup,
    Succeeds,
)
from muster.frameworks.ports import PortNumber, PortRange, port_option
from muster.frameworks.program_words import Adopted, Dropped, Program, Refused, adopted
from muster.spec.values import Size, Words

HEAD, DASHBOARD, CLIENTS, SERVE = 6379, 8265, 10001, 8000
#: Those of each node's agents: `ray start --NAME-port`. Ray itself takes any but for the first.
_AGENTS = {
    "dashboard-agent-listen": 52365,
    "dashboard-agent-grpc": 6380,
    "metrics-export": 6381,
    "runtime-env-agent": 6382,
}
_MAIN = "${roster.0.address}"
_ADDRESS = f"{_MAIN}:${{port.head}}"
_DASHBOARD = f"http://{_MAIN}:${{port.dashboard}}"
_TOKEN = "${run.token}"
#: Seconds that a node's Ray looks for the head's: longer than anybody waits for either.
_PATIENCE = 3600


class RayOptions(Struct, frozen=True, kw_only=True):
    """What Ray can be told.

    head_args: More words for `ray start` on the main node.
    worker_args: More words for `ray start` on the others.
    num_cpus: Of each node, as Ray counts them. Default: the node's CPUs, or its share where nodes
        share a machine.
    object_store_memory: Of each node, such as 2GiB. Default: 30% of the node's memory, or of its
        share where nodes share a machine.
    dashboard: Whether there is one. It needs ray[default], and seconds to start.
    clients: Whether drivers from outside can connect (ray://), as to a cluster that stays.
    serve: Whether Ray Serve runs, so that what the program deploys is an end point of the run. It
        needs ray[serve].
    submit: Whether the program is a job of Ray's, as with `ray job submit`.
    port: Where the head listens. Default: 6379, or a free one where nodes share a network.
    dashboard_port: Default: 8265, or a free one.
    client_port: Where clients connect to. Default: 10001, or a free one.
    serve_port: Where Ray Serve takes requests (HTTP). Default: 8000, or a free one.
    worker_ports: Where a node's workers listen, such as 10002-10201; as many free ones for each
        node where they share a network. Default: any free ports.
    """

    head_args: Words = ()
    worker_args: Words = ()
    num_cpus: Annotated[int, Meta(ge=0)] | None = None
    object_store_memory: Size | None = None
    dashboard: bool = True
    clients: bool = False
    serve: bool = False
    submit: bool = False
    port: PortNumber | None = None
    dashboard_port: PortNumber | None = None
    client_port: PortNumber | None = None
    serve_port: PortNumber | None = None
    worker_ports: PortRange | None = None


_AGENT_PORTS = tuple(f"--{name}-port" for name in _AGENTS)
_EVERYWHERE = (
    Dropped(("--block", "--disable-usage-stats")),
    Refused(
        ("--node-ip-address",),
        "each node listens at its own address",
        "leave it out; `network: cluster` gives each node an interface of its own",
    ),
    Refused(("--node-name",), "Muster knows Ray's nodes by their names"),
    Refused(("--temp-dir",), "paths of Ray's sockets have to be short, and apart from other runs'"),
    Refused(_AGENT_PORTS, "nodes that share a network need one each, which Muster finds"),
    Refused(
        ("--min-worker-port", "--max-worker-port"),
        "nodes that share a network need ports of their own",
        "write worker_ports: 10002-10201",
    ),
)
_HEAD = Program(
    "head_args",
    (
        Dropped(("--head",)),
        Adopted(("--port",), "port"),
        Adopted(("--dashboard-port",), "dashboard_port"),
        Adopted(("--include-dashboard",), "dashboard"),
        Refused(
            ("--dashboard-host",),
            "the dashboard listens at the main node's address",
            allowed=("0.0.0.0", "::"),
        ),
        Refused(
            ("--ray-client-server-port",),
            "Muster starts the server of clients, once the head is up",
            "write clients: true and client_port",
        ),
        Refused(("--address",), "it is the head that others connect to"),
        *_EVERYWHERE,
    ),
)
_WORKERS = Program(
    "worker_args",
    (
        Refused(("--address",), "workers are given the head's address"),
        Refused(("--head",), "the main node is the head, and the only one", switch=True),
        Refused(("--port",), "it is the head's", "write port"),
        *_EVERYWHERE,
    ),
)


class Ray(Framework):
    name = "ray"
    summary = "a Ray cluster; the program is its driver, on the main node"
    Options = RayOptions
    staying: ClassVar[Mapping[str, Any]] = {"clients": True}
    needs = (
        Need("6379", "main", "the head; every node, worker and driver connects to it"),
        Need("8265", "main", "the dashboard: who has joined, and jobs"),
        Need("10001", "main", "drivers from outside (ray://)"),
        Need("8000", "main", "Ray Serve, with `serve: true`: requests over HTTP"),
        Need("52365", "every", "the dashboard's agent"),
        Need("6380-6382", "every", "Ray's agents: metrics, and environments of tasks"),
        Need("any", "every", "Ray's node and object managers; see head_args, worker_args"),
        Need("any", "every", "workers and drivers, for each other; see worker_ports"),
    )

    def has_main(self, options: RayOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """The head beside the program, a worker on each other node.

        Raises InvalidInput if the program is to be a job and there is no dashboard to take it, or
        if words for `ray start` contradict what Muster tells it.
        """
        options = _adopted(cluster.options)
        if options.submit and not options.dashboard:
            text = "jobs of Ray's go through its dashboard, and there is to be none"
            raise InvalidInput(
                Problem("framework_options.submit", text, "leave out dashboard: false, or this")
            )
        main = RoleSetup(
            services=(
                _head(options),
                *((_clients(),) if options.clients else ()),
                *((_serve(),) if options.serve else ()),
            ),
            gather=_joined(cluster, options, cluster.main.env.get("RAY_AUTH_TOKEN", _TOKEN)),
            launcher=_submitting() if options.submit else (),
            processes=1,
        )
        serving = RoleSetup(
            services=(_worker(options),), program=False, decides=False, replaceable=True
        )
        return Setup(
            env={
                "RAY_ADDRESS": _ADDRESS,
                **({"RAY_API_SERVER_ADDRESS": _DASHBOARD} if options.dashboard else {}),
            },
            defaults={
                "HEAD_IP": _MAIN,  # where programs for ADS look
                "RAY_USAGE_STATS_ENABLED": "0",
                # whoever reaches a cluster without can run programs
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": _TOKEN,
                # requests come in at the main node, and would all be answered there
                **({"RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0"} if options.serve else {}),
            },
            ports=_ports(options),
            roles=cluster.shared_out(main, serving),
            endpoints={
                # where Ray's sockets and shared memory are, only the run's own processes see
                "address": f"ray://{_MAIN}:${{port.clients}}" if options.clients else _ADDRESS,
                **({"dashboard": _DASHBOARD} if options.dashboard else {}),
                **({"serve": f"http://{_MAIN}:${{port.serve}}"} if options.serve else {}),
                **({"token": "${run.token_file}"} if _asks_for_ours(cluster.main.env) else {}),
            },
        )


def _asks_for_ours(env: Mapping[str, str]) -> bool:
    """Whether clients have to show the run's own token."""
    return env.get("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN" not in env


def _adopted(options: RayOptions) -> RayOptions:
    problems: list[Problem] = []
    made: RayOptions = adopted(options, (_HEAD, _WORKERS), problems, {})
    if problems:
        raise InvalidInput(*problems)
    return made


def _head(options: RayOptions) -> Service:
    dashboard = ["--include-dashboard", str(options.dashboard).lower()]
    if options.dashboard:
        dashboard += ["--dashboard-host", _MAIN, "--dashboard-port", "${port.dashboard}"]
    return Service(
        name="head",
        command=_ray_start(
            options,
            *("--head", "--port", "${port.head}"),
            *dashboard,
            *options.head_args,
        ),
        defaults={
            **_DEFAULTS,
            # a node that is gone is noticed in 5 s instead of 20, one that hangs in 20 and not 65
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "5",
        },
        ready=Answers(_MAIN, "${port.head}"),
        grace=3.0,
    )


def _clients() -> Service:
    where = ("--address", _ADDRESS, "--host", _MAIN, "--port", "${port.clients}")
    return Service(
        name="clients",
        command=("${python}", "-m", "muster.node.ray", "clients", *where, "--node", "node-0"),
        # it forks a server for each client, which gRPC's own provisions for that may not survive
        defaults={"GRPC_ENABLE_FORK_SUPPORT": "0"},
        ready=Answers(_MAIN, "${port.clients}"),
        grace=1.0,
    )


def _serve() -> Service:
    where = ("--address", _ADDRESS, "--host", _MAIN, "--port", "${port.serve}")
    return Service(
        name="serve",
        command=("${python}", "-m", "muster.node.ray", "serve", *where, "--node", "node-0"),
        ready=Answers(_MAIN, "${port.serve}"),
        grace=1.0,
    )


def _worker(options: RayOptions) -> Service:
    return Service(
        name="worker",
        command=_ray_start(options, "--address", _ADDRESS, *options.worker_args),
        defaults=_DEFAULTS,
        after=Answers(_MAIN, "${port.head}"),
    )


_DEFAULTS = {
    "RAY_START_HOOK": "muster.node.ray.adjust",
    # each try takes a second or two; how long a cluster may take is the job's ready_timeout
    "RAY_NUM_REDIS_GET_RETRIES": str(_PATIENCE),
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(_PATIENCE),
    "RAY_agent_register_timeout_ms": str(_PATIENCE * 1000),
    # who is told to end is not needed any more, or would be killed before these 30 s are over
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # half a gigabyte by default, five times, of each of many files, in memory
    "RAY_ROTATION_MAX_BYTES": str(32 << 20),
    "RAY_ROTATION_BACKUP_COUNT": "1",
}


def _ray_start(options: RayOptions, *words: str) -> tuple[str, ...]:
    """The command. Threads are Ray's to count: each worker gets as many as its task has CPUs."""
    cpus = "${cpus}" if options.num_cpus is None else str(options.num_cpus)
    more = [word for name in _AGENTS for word in (f"--{name}-port", f"${{port.{name}}}")]
    store = options.object_store_memory
    more += ["--object-store-memory", "${memory.30}" if store is None else str(store)]
    more += ["--memory", "${memory.70}"]
    if options.worker_ports is not None:
        more += ["--min-worker-port", "${port.workers}"]
        more += ["--max-worker-port", "${port.workers.last}"]
    return (
        *("${python}", "-m", "muster.node.needs", "ray", "ray.scripts.scripts"),
        *("start", "--block"),
        *("--node-ip-address", "${node.address}", "--node-name", "node-${node.rank}"),
        # paths of sockets have 107 bytes; what is spilled would fill the memory there
        *("--temp-dir", "${folder}", "--object-spilling-directory", "${tmp}"),
        *("--num-cpus", cpus, "--disable-usage-stats", "--log-color", "false"),
        *more,
        *words,
    )


def _submitting() -> tuple[str, ...]:
    return ("${python}", "-m", "muster.node.ray", "submit", "--dashboard", _DASHBOARD, "--")


def _joined(cluster: Cluster, options: RayOptions, token: str) -> Joined | Succeeds:
    expected = tuple((rank, f"node-{rank}") for role in cluster.roles for rank in role.ranks)
    if not options.dashboard:
        return Succeeds(
            ("${python}", "-m", "muster.node.ray", "joined", "--address", _ADDRESS),
            expected=expected,
            what=f"{len(expected)} Ray nodes",
            patience=60.0,
        )
    return Joined(
        address=_MAIN,
        port="${port.dashboard}",
        path="/nodes?view=summary&nocache=1",
        members=("data", "summary", "*", "raylet"),
        name=("nodeName",),
        where={"state": "ALIVE"},
        expected=expected,
        what="Ray node",
        token=token,
    )


def _ports(options: RayOptions) -> tuple[Port, ...]:
    ports = [port_option("head", HEAD, options.port, "port")]
    if options.dashboard:
        ports.append(port_option("dashboard", DASHBOARD, options.dashboard_port, "dashboard_port"))
    if options.clients:
        ports.append(port_option("clients", CLIENTS, options.client_port, "client_port"))
    if options.serve:
        ports.append(port_option("serve", SERVE, options.serve_port, "serve_port"))
    ports += [Port(name, number, each=True) for name, number in _AGENTS.items()]
    if options.worker_ports is not None:
        first, last = map(int, options.worker_ports.split(":"))
        ports.append(Port("workers", first, each=True, count=last - first + 1, held=False))
    return tuple(ports)
