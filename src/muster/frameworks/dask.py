"""Dask: a scheduler and a worker on the main node, a worker on every other; the owner's program
runs on the main node and finds the scheduler in `DASK_SCHEDULER_ADDRESS`.

`distributed.Client()` connects there by itself. Dask's workers come and go while the others live.
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
from muster.frameworks.program_source import calls, imports
from muster.frameworks.program_words import Adopted, Dropped, Program, Refused, adopted
from muster.spec.values import Words
from muster.spec.wording import Refused as WrongValue

SCHEDULER, DASHBOARD = 8786, 8787
_MAIN = "${roster.0.address}"
_LEVEL = "DASK_LOGGING__DISTRIBUTED"


class DaskOptions(Struct, frozen=True, kw_only=True):
    """What Dask can be told.

    scheduler_args: More words for `dask scheduler`.
    worker_args: More words for `dask worker`.
    threads: Of each worker process. Default: the node's CPUs (where nodes share a machine, their
        share of its), or one where several workers share a node.
    worker_ports: Where workers listen, such as 8700-8800. Default: any free ports.
    nanny_ports: Where their nannies listen, such as 3000-3100. Default: any free ports.
    worker_on_main: Whether the main node works, too.
    tls: Whether all connections are encrypted, with certificates of the run's own.
    port: Where the scheduler listens. Default: 8786, or a free one where nodes share a network.
    dashboard_port: Where its dashboard is. Default: 8787, or a free one.
    """

    scheduler_args: Words = ()
    worker_args: Words = ()
    threads: Annotated[int, Meta(ge=1)] | None = None
    worker_ports: PortRange | None = None
    nanny_ports: PortRange | None = None
    worker_on_main: bool = True
    tls: bool = False
    port: PortNumber | None = None
    dashboard_port: PortNumber | None = None


def _port_in(text: str) -> str:
    """The port of a dashboard's address."""
    host, _, port = text.rpartition(":")
    if host not in ("", "0.0.0.0", "[::]", "*"):
        raise WrongValue(f"the dashboard listens at the node's own address, not {host}", ":8787")
    return port


def _range(text: str) -> str:
    return f"{text}:{text}" if text.isdigit() else text


_ADDRESS = "each node listens at its own address"
_OWN_ADDRESS = "leave it out; `network: cluster` gives each node an interface of its own"
_ENCRYPTION = (
    Refused(
        ("--tls-ca-file", "--tls-cert", "--tls-key"),
        "certificates are the run's",
        "write tls: true",
    ),
    Refused(
        ("--protocol",),
        "nodes speak tcp, or tls if encrypted",
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
        Refused(
            ("--no-dashboard",), "it is where Muster sees which workers have joined", switch=True
        ),
        Refused(("--dashboard-prefix",), "Muster asks the dashboard which workers have joined"),
        Refused(("--host", "--interface"), _ADDRESS, _OWN_ADDRESS),
        *_ENCRYPTION,
    ),
)
_WORKER = Program(
    "worker_args",
    (
        Refused(("--port",), "it is the scheduler's; a worker's own is --worker-port"),
        Adopted(("--nthreads",), "threads"),
        Adopted(("--worker-port",), "worker_ports", _range),
        Adopted(("--nanny-port",), "nanny_ports", _range),
        Refused(
            ("--nworkers", "--nprocs"),
            "each node has as many as the job says",
            "write processes_per_node, which is the job's",
        ),
        Refused(("--name",), "workers are known by their nodes' names"),
        Refused(("--scheduler-file",), "workers are given the scheduler's address"),
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
    # who asks for so many workers has so many
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
        """Of clusters of the program's own, and of what needs interfaces."""
        del env
        return tuple(_advice(source, network))

    def setup(self, cluster: Cluster) -> Setup:
        """The scheduler beside the program, a worker everywhere.

        Raises InvalidInput if a port is none, or a program's words contradict what Muster tells it.
        """
        options = _adopted(cluster)
        protocol = "tls" if options.tls else "tcp"
        address = f"{protocol}://{_MAIN}:${{port.scheduler}}"
        scheduler = Service(
            name="scheduler",
            command=(
                *("${python}", "-m", "muster.node.needs", "dask", "dask", "scheduler"),
                *("--host", _MAIN, "--port", "${port.scheduler}", "--protocol", protocol),
                *("--dashboard-address", f"{_MAIN}:${{port.dashboard}}"),
                *options.scheduler_args,
            ),
            defaults={_LEVEL: "info"},
        )
        worker = _worker(cluster, options, address)
        working = cluster.roles if options.worker_on_main else cluster.roles[1:]
        on_main = (worker,) if options.worker_on_main else ()
        main = RoleSetup(
            services=(scheduler, *on_main), gather=_joined(cluster, working), processes=1
        )
        serving = RoleSetup(services=(worker,), program=False, decides=False, replaceable=True)
        return Setup(
            env={"DASK_SCHEDULER_ADDRESS": address, **(_tls() if options.tls else {})},
            defaults={
                # where programs for ADS look
                "SCHEDULER_IP": f"tls://{_MAIN}" if options.tls else _MAIN,
                "SCHEDULER_PORT": "${port.scheduler}",
                # a worker is one of many: its libraries' own threads would be too many
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
            quiet=Quiet(
                _MAIN,
                "${port.dashboard}",
                "/json/counts.json",
                zero=("clients", "processing"),
                own={"clients": 1},  # the scheduler counts one that is called fire-and-forget
            ),
        )


#: What a Client starts a cluster of its own for.
_OWN_CLUSTER = frozenset({"n_workers", "threads_per_worker", "processes", "memory_limit"})


def _advice(source: str, network: Network) -> Iterator[str]:
    for name, line, given in calls(source):
        if name == "LocalCluster":
            yield (
                f"line {line}: a LocalCluster works on the main node alone; `Client()` without it "
                "finds the run's cluster"
            )
        elif name == "Client" and (own := sorted(_OWN_CLUSTER & given)):
            yield (
                f"line {line}: Dask refuses Client({own[0]}=...) where there is a cluster; "
                "write `Client()`, and say it as nodes, processes_per_node or threads"
            )
    if network == "shared" and imports(source, "lightgbm"):
        yield (
            "LightGBM on Dask looks for its node's address on a network interface of the node's: "
            "say `network: cluster` or `isolated`"
        )


#: The variables that say the same as two of the options.
_VARIABLES = {"port": "DASK_SCHEDULER_PORT", "dashboard_port": "DASK_DASHBOARD_PORT"}


def _adopted(cluster: Cluster) -> DaskOptions:
    options: DaskOptions = cluster.options
    problems: list[Problem] = []
    fixed = {}
    for name, variable in _VARIABLES.items():
        # the first role counts that has it, as for `port_of`
        texts = [role.env[variable] for role in cluster.roles if variable in role.env]
        if not texts:
            continue
        fixed[name] = (f"env.{variable}", texts[0])
        asked = getattr(options, name)
        if asked is not None and str(asked) != texts[0]:
            text = f"is {asked}, but env.{variable} is {texts[0]}"
            hint = "leave out one of them, or say the same"
            problems.append(Problem(f"framework_options.{name}", text, hint))
    made: DaskOptions = adopted(options, (_SCHEDULER, _WORKER), problems, fixed)
    if problems:
        raise InvalidInput(*problems)
    return made


def _port(cluster: Cluster, name: str, usual: int, option: str, asked: int | None) -> Port:
    if asked is not None:
        return port_option(name, usual, asked, option)
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
            # which waits for the scheduler, and imports meanwhile
            *("${python}", "-m", "muster.node.needs", "dask", "muster.node.dask"),
            *("worker", address),
            *("--host", "${node.address}", "--name", "node-${node.rank}"),
            *("--death-timeout", "60"),
            *words,
            *options.worker_args,
        ),
        defaults={_LEVEL: "warning"},  # all else it tells would drown what its tasks print
        output="node",
        # scheduler and workers that are told to end at once may wait for each other
        grace=3.0,
    )


def _joined(cluster: Cluster, working: tuple[Role, ...]) -> Joined:
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
