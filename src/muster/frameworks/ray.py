"""Ray: a head and the user's program on the main node, a worker on every other node.

`ray.init()` finds the cluster in `RAY_ADDRESS`. Workers may leave and join while the others keep
running; there is one head.
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
from muster.frameworks.program_options import Adopted, Dropped, Program, Refused, adopt_arguments
from muster.spec.values import Size, Words

HEAD, DASHBOARD, CLIENTS, SERVE = 6379, 8265, 10001, 8000
#: Ports of each node's agents: `ray start --NAME-port`. Only the first has a default in Ray.
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
#: Seconds for which a node looks for the head: longer than any timeout of the job.
_TIMEOUT = 3600


class RayOptions(Struct, frozen=True, kw_only=True):
    """Options of Ray."""

    head_args: Words = ()
    """Further arguments of `ray start` on the main node."""
    worker_args: Words = ()
    """Further arguments of `ray start` on the other nodes."""
    num_cpus: Annotated[int, Meta(ge=0)] | None = None
    """CPUs of each node in Ray. Default: the node's CPUs, or its share if nodes share a machine."""
    object_store_memory: Size | None = None
    """Object store of each node, such as 2GiB. Default: 30% of the node's memory, or of its share
    if nodes share a machine."""
    dashboard: bool = True
    """Start the dashboard. It needs ray[default] and takes seconds to start."""
    clients: bool = False
    """Let drivers outside the run connect (ray://), as in a persistent cluster."""
    serve: bool = False
    """Start Ray Serve, so that the program's deployments are an endpoint of the run. Needs
    ray[serve]."""
    submit: bool = False
    """Submit the program as a Ray job, as with `ray job submit`."""
    port: PortNumber | None = None
    """Port of the head. Default: 6379, or a free one if nodes share a network."""
    dashboard_port: PortNumber | None = None
    """Port of the dashboard. Default: 8265, or a free one."""
    client_port: PortNumber | None = None
    """Port for clients. Default: 10001, or a free one."""
    serve_port: PortNumber | None = None
    """Port of Ray Serve (HTTP). Default: 8000, or a free one."""
    worker_ports: PortRange | None = None
    """Ports of a node's workers, such as 10002-10201; if nodes share a network, as many free ports
    for each node. Default: any free ports."""


_AGENT_PORTS = tuple(f"--{name}-port" for name in _AGENTS)
_EVERYWHERE = (
    Dropped(("--block", "--disable-usage-stats")),
    Refused(
        ("--node-ip-address",),
        "each node listens at its own address",
        "leave it out; `network: cluster` gives each node its own interface",
    ),
    Refused(("--node-name",), "Muster identifies Ray's nodes by their names"),
    Refused(("--temp-dir",), "paths of Ray's sockets must be short and separate from other runs'"),
    Refused(_AGENT_PORTS, "nodes that share a network need one each, and Muster finds free ones"),
    Refused(
        ("--min-worker-port", "--max-worker-port"),
        "nodes that share a network need different ports",
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
            "Muster starts the client server when the head is ready",
            "write clients: true and client_port",
        ),
        Refused(("--address",), "this node is the head"),
        *_EVERYWHERE,
    ),
)
_WORKERS = Program(
    "worker_args",
    (
        Refused(("--address",), "Muster gives workers the head's address"),
        Refused(("--head",), "the main node is the only head", switch=True),
        Refused(("--port",), "this is the head's port", "write port"),
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
        """The head and the program on the main node, a worker on each other node.

        Raises InvalidInput for `submit` without a dashboard, and for arguments of `ray start` that
        contradict Muster's.
        """
        options = _adopt_options(cluster.options)
        if options.submit and not options.dashboard:
            text = "Ray jobs need the dashboard, but dashboard is false"
            raise InvalidInput(Problem("framework_options.submit", text, "remove one of the two"))
        main = RoleSetup(
            services=(
                _head(options),
                *((_clients(),) if options.clients else ()),
                *((_serve(),) if options.serve else ()),
            ),
            gather=_joined_check(cluster, options, cluster.main.env.get("RAY_AUTH_TOKEN", _TOKEN)),
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
            defaults=_defaults(options),
            ports=_ports(options),
            roles=cluster.shared_out(main, serving),
            endpoints=_endpoints(options, cluster.main.env),
        )


def _defaults(options: RayOptions) -> dict[str, str]:
    """Variables that the job may override."""
    return {
        "HEAD_IP": _MAIN,  # read by programs for ADS
        "RAY_USAGE_STATS_ENABLED": "0",
        # without a token, anyone who reaches the cluster can run programs
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": _TOKEN,
        # else the main node, which gets all requests, would also process them all
        **({"RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0"} if options.serve else {}),
    }


def _endpoints(options: RayOptions, env: Mapping[str, str]) -> dict[str, str]:
    """The addresses of the cluster by name. env: of the main node."""
    return {
        # only the run's processes see Ray's sockets and shared memory
        "address": f"ray://{_MAIN}:${{port.clients}}" if options.clients else _ADDRESS,
        **({"dashboard": _DASHBOARD} if options.dashboard else {}),
        **({"serve": f"http://{_MAIN}:${{port.serve}}"} if options.serve else {}),
        **({"token": "${run.token_file}"} if _requires_run_token(env) else {}),
    }


def _requires_run_token(env: Mapping[str, str]) -> bool:
    """Whether clients need the run's token."""
    return env.get("RAY_AUTH_MODE", "token") == "token" and "RAY_AUTH_TOKEN" not in env


def _adopt_options(options: RayOptions) -> RayOptions:
    problems: list[Problem] = []
    made: RayOptions = adopt_arguments(options, (_HEAD, _WORKERS), problems, {})
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
            # detect a lost node in 5 s instead of 20, and a hanging one in 20 s instead of 65
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
        # it forks a server for each client, which gRPC's fork support may crash
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
    # a try takes one or two seconds; the job's ready_timeout limits them all
    "RAY_NUM_REDIS_GET_RETRIES": str(_TIMEOUT),
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(_TIMEOUT),
    "RAY_agent_register_timeout_ms": str(_TIMEOUT * 1000),
    # a node that is stopped need not drain, and is killed before the default of 30 s
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    # the default is five times 512 MB for each of many files, in memory
    "RAY_ROTATION_MAX_BYTES": str(32 << 20),
    "RAY_ROTATION_BACKUP_COUNT": "1",
}


def _ray_start(options: RayOptions, *words: str) -> tuple[str, ...]:
    """The command. Ray itself limits the threads of a worker to the CPUs of its task."""
    cpus = "${cpus}" if options.num_cpus is None else str(options.num_cpus)
    more = [word for name in _AGENTS for word in (f"--{name}-port", f"${{port.{name}}}")]
    store = options.object_store_memory
    more += ["--object-store-memory", "${memory.30}" if store is None else str(store)]
    more += ["--memory", "${memory.70}"]
    if options.worker_ports is not None:
        more += ["--min-worker-port", "${port.workers}"]
        more += ["--max-worker-port", "${port.workers.last}"]
    return (
        *("${python}", "-m", "muster.node.requirements", "ray", "ray.scripts.scripts"),
        *("start", "--block"),
        *("--node-ip-address", "${node.address}", "--node-name", "node-${node.rank}"),
        # socket paths are limited to 107 bytes; spilled objects would fill the memory there
        *("--temp-dir", "${folder}", "--object-spilling-directory", "${tmp}"),
        *("--num-cpus", cpus, "--disable-usage-stats", "--log-color", "false"),
        *more,
        *words,
    )


def _submitting() -> tuple[str, ...]:
    return ("${python}", "-m", "muster.node.ray", "submit", "--dashboard", _DASHBOARD, "--")


def _joined_check(cluster: Cluster, options: RayOptions, token: str) -> Joined | Succeeds:
    expected = tuple((rank, f"node-{rank}") for role in cluster.roles for rank in role.ranks)
    if not options.dashboard:
        return Succeeds(
            ("${python}", "-m", "muster.node.ray", "joined", "--address", _ADDRESS),
            expected=expected,
            what=f"{len(expected)} Ray nodes",
            timeout=60.0,
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
