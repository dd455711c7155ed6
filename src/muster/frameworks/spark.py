"""Spark, standalone: a master and a worker on the main node, a worker on every other node.

The user's program runs on the main node; `SparkSession.builder.getOrCreate()` finds the master in
`MASTER`. Workers may leave and join while the others keep running.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import (
    Answers,
    Cluster,
    Framework,
    Joined,
    Need,
    Port,
    Role,
    RoleSetup,
    Service,
    Setup,
)
from muster.frameworks.ports import PortNumber, port_option
from muster.frameworks.program_options import Adopted, Program, Refused, adopt_arguments
from muster.spec.values import Size, Tags, Words

MASTER, MASTER_UI, WORKER_UI = 7077, 8080, 8081
_MAIN = "${roster.0.address}"
#: A worker's share of memory. The rest is for Python and, on the main node, the driver.
_SHARE = "${memory.60}"
_ADDRESS = f"spark://{_MAIN}:${{port.master}}"


class SparkOptions(Struct, frozen=True, kw_only=True):
    """Options of Spark."""

    cores: Annotated[int, Meta(ge=1)] | None = None
    """Cores of each worker. Default: the node's CPUs, or its share if nodes share a machine."""
    memory: Size | None = None
    """Memory of each worker, for all its executors. Default: 60% of the node's memory, or of its
    share if nodes share a machine; the rest is for Python and Spark itself."""
    executor_memory: Size | None = None
    """Memory of each executor. Default: the worker's memory."""
    driver_memory: Size | None = None
    """Memory of the program's JVM. Default: Spark's, 1 GiB."""
    conf: Tags = {}
    """Spark's properties for the program, such as `spark.sql.shuffle.partitions: 8`."""
    master_args: Words = ()
    """Further arguments of the master."""
    worker_args: Words = ()
    """Further arguments of each worker."""
    worker_on_main: bool = True
    """Run a worker on the main node, too."""
    port: PortNumber | None = None
    """Port of the master. Default: 7077, or a free one if nodes share a network."""
    dashboard_port: PortNumber | None = None
    """Port of the dashboard. Default: 8080, or a free one."""


def _amount(text: str) -> str:
    """A size of Spark (512m, 2g; MiB without a unit) in Muster's notation."""
    number, unit = text.rstrip("bB"), "MiB"
    if number[-1:].lower() in ("k", "m", "g", "t"):
        number, unit = number[:-1], f"{number[-1].upper()}iB"
    elif number != text:
        unit = "B"
    return f"{number}{unit}"


_ADDRESSES = Refused(
    ("--host", "--ip", "-h", "-i"),
    "each node listens at its own address",
    "leave it out; `network: cluster` gives each node its own interface",
)
_MASTER = Program(
    "master_args",
    (
        Adopted(("--port", "-p"), "port"),
        Adopted(("--webui-port",), "dashboard_port"),
        _ADDRESSES,
    ),
)
_WORKER = Program(
    "worker_args",
    (
        Adopted(("--cores", "-c"), "cores"),
        Adopted(("--memory", "-m"), "memory", _amount),
        Refused(
            ("--webui-port",),
            "nodes that share a network need one each, and Muster finds free ones",
        ),
        _ADDRESSES,
    ),
)
#: Properties that Muster sets -> what to do instead.
_PROPERTIES = {
    "spark.master": "leave it out: programs find the run's master",
    "spark.executor.memory": "write executor_memory",
    "spark.driver.memory": "write driver_memory",
    "spark.driver.host": "leave it out: it is the main node's own address",
    "spark.driver.bindAddress": "leave it out: it is the main node's own address",
    "spark.local.dir": "leave it out: it is the node's $TMPDIR",
}


class Spark(Framework):
    name = "spark"
    summary = "a standalone Spark cluster; the program is its driver, on the main node"
    Options = SparkOptions
    needs = (
        Need("7077", "main", "the master; workers and drivers connect to it"),
        Need("8080", "main", "the master's page, and who has joined"),
        Need("8081", "every", "the workers' pages"),
        Need("4040", "main", "the program's page"),
        Need("any", "every", "workers, executors and the driver, for each other; see conf"),
    )

    def has_main(self, options: SparkOptions) -> bool:
        return True

    def setup(self, cluster: Cluster) -> Setup:
        """The master and the program on the main node, workers on all nodes.

        Raises InvalidInput if no executor fits on a worker, if the cluster has no workers, or if
        arguments contradict Muster's.
        """
        options = _adopt_options(cluster.options)
        working = cluster.roles if options.worker_on_main else cluster.roles[1:]
        _check(options, working=bool(working))
        worker = _worker(options)
        main = RoleSetup(
            services=(_master(options), *((worker,) if options.worker_on_main else ())),
            gather=_joined_check(working),
            processes=1,
        )
        serving = RoleSetup(services=(worker,), program=False, decides=False, replaceable=True)
        return Setup(
            env={
                "MASTER": _ADDRESS,
                "SPARK_LOCAL_IP": "${node.address}",
                "SPARK_LOCAL_DIRS": "${tmp}",
            },
            defaults={
                "PYSPARK_SUBMIT_ARGS": _submit_args(options),
                "PYSPARK_PYTHON": "${python}",
                "OMP_NUM_THREADS": "1",  # many tasks share a node
            },
            ports=(
                port_option("master", MASTER, options.port, "port"),
                port_option("dashboard", MASTER_UI, options.dashboard_port, "dashboard_port"),
                Port("worker-ui", WORKER_UI, each=True),
            ),
            roles=cluster.shared_out(main, serving),
            endpoints={"address": _ADDRESS, "dashboard": f"http://{_MAIN}:${{port.dashboard}}"},
        )


def _joined_check(working: Sequence[Role]) -> Joined:
    """The check that the workers of these roles have registered with the master."""
    return Joined(
        address=_MAIN,
        port="${port.dashboard}",
        path="/json/",
        members=("workers", "*"),
        name=("host",),
        where={"state": "ALIVE"},
        expected=tuple(
            (rank, f"${{roster.{rank}.address}}") for role in working for rank in role.ranks
        ),
        what="Spark worker",
    )


def _adopt_options(options: SparkOptions) -> SparkOptions:
    problems = [
        Problem(f"framework_options.conf.{name}", "is set by Muster", _PROPERTIES[name])
        for name in options.conf
        if name in _PROPERTIES
    ]
    made: SparkOptions = adopt_arguments(options, (_MASTER, _WORKER), problems, {})
    if problems:
        raise InvalidInput(*problems)
    return made


def _check(options: SparkOptions, *, working: bool) -> None:
    problems = []
    if options.memory is not None and (options.executor_memory or 0) > options.memory:
        text = "executors would not fit on a worker, and the program would wait forever"
        hint = "give at most framework_options.memory"
        problems.append(Problem("framework_options.executor_memory", text, hint))
    if not working:
        text = "there would be no worker: the main node is the only node"
        hint = "leave it out, or add nodes"
        problems.append(Problem("framework_options.worker_on_main", text, hint))
    if problems:
        raise InvalidInput(*problems)


def _master(options: SparkOptions) -> Service:
    return Service(
        name="master",
        command=(
            *_spark_class("master.Master"),
            *("--host", _MAIN, "--port", "${port.master}", "--webui-port", "${port.dashboard}"),
            *options.master_args,
        ),
        defaults=_DEFAULTS,
        ready=Answers(_MAIN, "${port.master}"),
        grace=3.0,
    )


def _worker(options: SparkOptions) -> Service:
    memory = f"{_SHARE}b" if options.memory is None else _size(options.memory)
    return Service(
        name="worker",
        command=(
            *_spark_class("worker.Worker"),
            *("--host", "${node.address}", "--webui-port", "${port.worker-ui}"),
            *("--cores", "${cpus}" if options.cores is None else str(options.cores)),
            *("--work-dir", "${tmp}/spark", "--memory", memory, *options.worker_args, _ADDRESS),
        ),
        defaults=_DEFAULTS,
        # a worker retries only after 5 to 15 s
        after=Answers(_MAIN, "${port.master}"),
        grace=3.0,
    )


_DEFAULTS = {
    # detect a hanging or disconnected worker in 30 s instead of 60
    "SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=30",
}


def _spark_class(name: str) -> tuple[str, ...]:
    return ("${python}", "-m", "muster.node.spark", f"org.apache.spark.deploy.{name}")


def _submit_args(options: SparkOptions) -> str:
    """Arguments of spark-submit, by which pyspark starts the program's JVM."""
    properties = {
        # the first tasks wait up to 30 s until all nodes have joined
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        **options.conf,
    }
    memory = options.executor_memory or options.memory
    executor = f"{_SHARE}b" if memory is None else _size(memory)
    words = [word for key, value in properties.items() for word in ("--conf", f"{key}={value}")]
    words += ["--executor-memory", executor]
    if options.driver_memory is not None:
        words += ["--driver-memory", _size(options.driver_memory)]
    return shlex.join([*words, "pyspark-shell"])


def _size(count: int) -> str:
    """A size in Java's notation: whole mebibytes."""
    return f"{max(count >> 20, 1)}m"
