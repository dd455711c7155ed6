"""Dask: a scheduler and a worker on the main node, a worker on every other node.

The user's program runs on the main node; `distributed.Client()` finds the scheduler in
`DASK_SCHEDULER_ADDRESS`. Workers may leave and join while the others keep running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import (
    Cluster,
    Framework,
    Joined,
    Need,
    Network,
    Port,
    Quiet,
    Role,
    RoleSetup,
    Service,
    Setup,
)
from muster.frameworks.ports import PortNumber, PortRange, port_of, port_option
from muster.frameworks.program_options import Adopted, Dropped, Program, Refused, adopt_arguments
from muster.frameworks.program_source import calls, imports
from muster.spec.values import Words
from muster.spec.wording import Refused as WrongValue

SCHEDULER, DASHBOARD = 8786, 8787
_MAIN = "${roster.0.address}"
_LEVEL = "DASK_LOGGING__DISTRIBUTED"


class DaskOptions(Struct, frozen=True, kw_only=True):
    """Options of Dask."""

    scheduler_args: Words = ()
    """Further arguments of `dask scheduler`."""
    worker_args: Words = ()
    """Further arguments of `dask worker`."""
    threads: Annotated[int, Meta(ge=1)] | None = None
    """Threads of each worker process. Default: the node's CPUs (or its share, if nodes share a
    machine); 1 if several workers share a node."""
    worker_ports: PortRange | None = None
    """Ports of workers, such as 8700-8800. Default: any free ports."""
    nanny_ports: PortRange | None = None
    """Ports of nannies, such as 3000-3100. Default: any free ports."""
    worker_on_main: bool = True
    """Run a worker on the main node, too."""
    tls: bool = False
    """Encrypt all connections, with certificates made for the run."""
    port: PortNumber | None = None
    """Port of the scheduler. Default: 8786, or a free one if nodes share a network."""
    dashboard_port: PortNumber | None = None
    """Port of the dashboard. Default: 8787, or a free one."""


def _port_in(text: str) -> str:
    """The port of a dashboard's address."""
    host, _, port = text.rpartition(":")
    if host not in ("", "0.0.0.0", "[::]", "*"):
        raise WrongValue(f"the dashboard listens at the node's own address, not {host}", ":8787")
    return port


def _range(text: str) -> str:
    return f"{text}:{text}" if text.isdigit() else text


_ADDRESS = "each node listens at its own address"
_OWN_ADDRESS = "leave it out; `network: cluster` gives each node its own interface"
_ENCRYPTION = (
    Refused(
        ("--tls-ca-file", "--tls-cert", "--tls-key"),
        "Muster makes the certificates",
        "write tls: true",
    ),
    Refused(
        ("--protocol",),
        "nodes use tcp, or tls if encrypted",
        "write tls: true",
        allowed=("tcp", "tcp://"),
    ),
)
_SCHEDULER = Program(
    "scheduler_args",
    (
        Adopted(("--port",), "port"),
        Adopted(("--dashboard-address",), "dashboard_port", _port_in),
        Dropped(("--dashboard",)),
        Refused(("--no-dashboard",), "Muster reads there which workers have joined", switch=True),
        Refused(("--dashboard-prefix",), "Muster reads at the dashboard which workers have joined"),
        Refused(("--host", "--interface"), _ADDRESS, _OWN_ADDRESS),
        *_ENCRYPTION,
    ),
)
_WORKER = Program(
    "worker_args",
    (
        Refused(("--port",), "this is the scheduler's port; a worker's is --worker-port"),
        Adopted(("--nthreads",), "threads"),
        Adopted(("--worker-port",), "worker_ports", _range),
        Adopted(("--nanny-port",), "nanny_ports", _range),
        Refused(
            ("--nworkers", "--nprocs"),
            "the job sets the number",
            "write processes_per_node in the job",
        ),
        Refused(("--name",), "workers have their nodes' names"),
        Refused(("--scheduler-file",), "Muster gives workers the scheduler's address"),
        Refused(
            ("--host", "--interface", "--listen-address", "--contact-address"),
            _ADDRESS,
            _OWN_ADDRESS,
        ),
        *_ENCRYPTION,
    ),
)


class Dask(Framework):
    name = "dask"
    summary = "a Dask cluster; the program is its client, on the main node"
    Options = DaskOptions
    # so that the number of workers is the one requested
    staying: ClassVar[Mapping[str, Any]] = {"worker_on_main": False}
    needs = (
        Need("8786", "main", "the scheduler; workers and clients connect to it"),
        Need("8787", "main", "the dashboard, and who has joined"),
        Need("8700-8800", "every", "workers, for each other's data; see worker_ports"),
        Need("3000-3100", "every", "nannies, for the scheduler; see nanny_ports"),
    )

    def has_main(self, options: DaskOptions) -> bool:
        return True

    def advice(self, source: str, network: Network, env: Collection[str]) -> tuple[str, ...]:
        """About clusters that the program starts itself, and libraries that need an interface."""
        del env
        return tuple(_advice(source, network))

    def setup(self, cluster: Cluster) -> Setup:
        """The scheduler and the program on the main node, workers on all nodes.

        Raises InvalidInput for invalid ports and for arguments that contradict Muster's.
        """
        options = _adopt_options(cluster)
        protocol = "tls" if options.tls else "tcp"
        address = f"{protocol}://{_MAIN}:${{port.scheduler}}"
        worker = _worker(cluster, options, address)
        working = cluster.roles if options.worker_on_main else cluster.roles[1:]
        on_main = (worker,) if options.worker_on_main else ()
        main = RoleSetup(
            services=(_scheduler(options, protocol), *on_main),
            gather=_joined_check(cluster, working),
            processes=1,
        )
        serving = RoleSetup(services=(worker,), program=False, decides=False, replaceable=True)
        return Setup(
            env={"DASK_SCHEDULER_ADDRESS": address, **(_tls() if options.tls else {})},
            defaults={
                # read by programs for ADS
                "SCHEDULER_IP": f"tls://{_MAIN}" if options.tls else _MAIN,
                "SCHEDULER_PORT": "${port.scheduler}",
                # many workers share a node; libraries should not start further threads
                "OMP_NUM_THREADS": "1",
            },
            ports=(
                replace(_port(cluster, "scheduler", SCHEDULER, "port", options.port), own=True),
                _port(cluster, "dashboard", DASHBOARD, "dashboard_port", options.dashboard_port),
            ),
            roles=cluster.shared_out(main, serving),
            tls=options.tls,
            endpoints={
                "address": address,
                "dashboard": f"http://{_MAIN}:${{port.dashboard}}/status",
            },
            quiet=_QUIET,
        )


#: The cluster is idle without clients and tasks.
_QUIET = Quiet(
    _MAIN,
    "${port.dashboard}",
    "/json/counts.json",
    zero=("clients", "processing"),
    own={"clients": 1},  # the scheduler counts its own client, fire-and-forget
)


def _scheduler(options: DaskOptions, protocol: str) -> Service:
    return Service(
        name="scheduler",
        command=(
            *("${python}", "-m", "muster.node.requirements", "dask", "dask", "scheduler"),
            *("--host", _MAIN, "--port", "${port.scheduler}", "--protocol", protocol),
            *("--dashboard-address", f"{_MAIN}:${{port.dashboard}}"),
            *options.scheduler_args,
        ),
        defaults={_LEVEL: "info"},
    )


#: Arguments for which a Client starts a separate cluster.
_OWN_CLUSTER = frozenset({"n_workers", "threads_per_worker", "processes", "memory_limit"})


def _advice(source: str, network: Network) -> Iterator[str]:
    for name, line, given in calls(source):
        if name == "LocalCluster":
            yield (
                f"line {line}: a LocalCluster uses only the main node; `Client()` without it "
                "connects to the run's cluster"
            )
        elif name == "Client" and (own := sorted(_OWN_CLUSTER & given)):
            yield (
                f"line {line}: Dask refuses Client({own[0]}=...) if there is a cluster; write "
                "`Client()`, and set nodes, processes_per_node or threads instead"
            )
    if network == "shared" and imports(source, "lightgbm"):
        yield (
            "LightGBM on Dask needs a network interface with the node's address: "
            "use `network: cluster` or `isolated`"
        )


#: Variables that set the same as these options.
_VARIABLES = {"port": "DASK_SCHEDULER_PORT", "dashboard_port": "DASK_DASHBOARD_PORT"}


def _adopt_options(cluster: Cluster) -> DaskOptions:
    options: DaskOptions = cluster.options
    problems: list[Problem] = []
    fixed = {}
    for name, variable in _VARIABLES.items():
        # the first role with the port, as in `port_of`
        texts = [role.env[variable] for role in cluster.roles if variable in role.env]
        if not texts:
            continue
        fixed[name] = (f"env.{variable}", texts[0])
        given = getattr(options, name)
        if given is not None and str(given) != texts[0]:
            text = f"is {given}, but env.{variable} is {texts[0]}"
            hint = "leave out one of them, or set both to the same"
            problems.append(Problem(f"framework_options.{name}", text, hint))
    made: DaskOptions = adopt_arguments(options, (_SCHEDULER, _WORKER), problems, fixed)
    if problems:
        raise InvalidInput(*problems)
    return made


def _port(cluster: Cluster, name: str, usual: int, option: str, given: int | None) -> Port:
    if given is not None:
        return port_option(name, usual, given, option)
    return port_of(cluster, name, usual, _VARIABLES[option])


def _worker(cluster: Cluster, options: DaskOptions, address: str) -> Service:
    count = cluster.processes_per_node
    words = ["--nworkers", str(count)]
    threads = "${cpus}" if count == 1 else "1"
    words += ["--nthreads", str(options.threads or threads)]
    words += ["--memory-limit", "${memory.each}"]
    if not any(word.startswith("--dashboard") for word in options.worker_args):
        words.append("--no-dashboard")
    if options.worker_ports is not None:
        words += ["--worker-port", options.worker_ports]
    if options.nanny_ports is not None:
        words += ["--nanny-port", options.nanny_ports]
    return Service(
        name="worker",
        command=(
            # waits for the scheduler, and imports Dask meanwhile
            *("${python}", "-m", "muster.node.requirements", "dask", "muster.node.dask"),
            *("worker", address),
            *("--host", "${node.address}", "--name", "node-${node.rank}"),
            *("--death-timeout", "60"),
            *words,
            *options.worker_args,
        ),
        defaults={_LEVEL: "warning"},  # its other messages would bury the output of tasks
        output="node",
        # scheduler and workers that are stopped at once may wait for each other
        grace=3.0,
    )


def _joined_check(cluster: Cluster, working: tuple[Role, ...]) -> Joined:
    each = cluster.processes_per_node
    numbers = [""] if each == 1 else [f"-{worker}" for worker in range(each)]
    ranks = [rank for role in working for rank in role.ranks]
    return Joined(
        address=_MAIN,
        port="${port.dashboard}",
        path="/json/identity.json",
        members=("workers", "*"),
        name=("name",),
        expected=tuple((rank, f"node-{rank}{number}") for rank in ranks for number in numbers),
        what="Dask worker",
    )


def _tls() -> dict[str, str]:
    prefix = "DASK_DISTRIBUTED__COMM"
    env = {
        f"{prefix}__TLS__CA_FILE": "${run.tls}/ca.pem",
        f"{prefix}__REQUIRE_ENCRYPTION": "true",
    }
    for who in ("SCHEDULER", "WORKER", "CLIENT"):
        env[f"{prefix}__TLS__{who}__CERT"] = "${run.tls}/cert.pem"
        env[f"{prefix}__TLS__{who}__KEY"] = "${run.tls}/key.pem"
    return env
