"""Dask: a scheduler and a worker on the main node, a worker on every other; the owner's program
runs on the main node and finds the scheduler in `DASK_SCHEDULER_ADDRESS`.

`distributed.Client()` connects there by itself. Dask's workers come and go while the others live.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from muster.frameworks.base import (
    Cluster,
    Framework,
    Joined,
    Need,
    Quiet,
    Role,
    RoleSetup,
    Service,
    Setup,
)
from muster.frameworks.ports import PortRange, port_of
from muster.spec.values import Words

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
    """

    scheduler_args: Words = ()
    worker_args: Words = ()
    threads: Annotated[int, Meta(ge=1)] | None = None
    worker_ports: PortRange | None = None
    nanny_ports: PortRange | None = None
    worker_on_main: bool = True
    tls: bool = False


class Dask(Framework):
    name = "dask"
    summary = "a Dask cluster; the program is its client, on the main node"
    Options = DaskOptions
    # who asks for so many workers has so many
    staying: ClassVar[Mapping[str, Any]] = {"worker_on_main": False}
    needs = (
        Need("8786", "main", "the scheduler; workers and clients connect to it"),
        Need("8787", "main", "the dashboard, and who has joined"),
        Need("any", "every", "workers, for each other's data; see worker_ports"),
        Need("any", "every", "nannies, for the scheduler; see nanny_ports"),
    )

    def has_main(self, options: DaskOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """The scheduler beside the program, a worker everywhere."""
        options: DaskOptions = cluster.options
        protocol = "tls" if options.tls else "tcp"
        address = f"{protocol}://{_MAIN}:${{port.scheduler}}"
        scheduler = Service(
            name="scheduler",
            command=(
                *("${python}", "-m", "dask", "scheduler"),
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
                # a worker is one of many: its libraries' own threads would be too many
                "OMP_NUM_THREADS": "1",
                # a node that hangs, or is cut off, is noticed in 30 s instead of 5 minutes
                "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s",
            },
            ports=(
                port_of(cluster, "scheduler", SCHEDULER, "DASK_SCHEDULER_PORT"),
                port_of(cluster, "dashboard", DASHBOARD, "DASK_DASHBOARD_PORT"),
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


def _worker(cluster: Cluster, options: DaskOptions, address: str) -> Service:
    count = cluster.processes_per_node
    words = ["--nworkers", str(count)]
    threads = "${cpus}" if count == 1 else "1"
    words += ["--nthreads", str(options.threads or threads)]
    if options.worker_ports is not None:
        words += ["--worker-port", options.worker_ports]
    if options.nanny_ports is not None:
        words += ["--nanny-port", options.nanny_ports]
    return Service(
        name="worker",
        command=(
            # which waits for the scheduler, and imports meanwhile
            *("${python}", "-m", "muster.node.dask", "worker", address),
            *("--host", "${node.address}", "--name", "node-${node.rank}"),
            *("--death-timeout", "60", "--no-dashboard"),
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
