"""Spark, standalone: a master and a worker on the main node, a worker on every other; the owner's
program runs on the main node and finds the master in `MASTER`.

`SparkSession.builder.getOrCreate()` connects there by itself. Spark's workers come and go while the
others live.
"""

from __future__ import annotations

import shlex
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
    RoleSetup,
    Service,
    Setup,
)
from muster.frameworks.ports import PortNumber, port_option
from muster.frameworks.program_words import Adopted, Program, Refused, adopted
from muster.spec.values import Size, Tags, Words

MASTER, MASTER_UI, WORKER_UI = 7077, 8080, 8081
_MAIN = "${roster.0.address}"
#: A worker's memory; besides, there are Python's processes, and on the main node the driver.
_SHARE = "${memory.60}"
_ADDRESS = f"spark://{_MAIN}:${{port.master}}"


class SparkOptions(Struct, frozen=True, kw_only=True):
    """What Spark can be told.

    cores: Of each worker. Default: the node's CPUs, or its share where nodes share a machine.
    memory: Of each worker, for all its executors. Default: 60% of the node's memory, or of its
        share where nodes share a machine; the rest is for Python, and Spark itself.
    executor_memory: Of each executor. Default: all that its worker has.
    driver_memory: Of the program's JVM. Default: Spark's own, 1 GiB.
    conf: Spark's properties for the program, such as `spark.sql.shuffle.partitions: 8`.
    master_args: More words for the master.
    worker_args: More words for each worker.
    worker_on_main: Whether the main node works, too.
    port: Where the master listens. Default: 7077, or a free one where nodes share a network.
    dashboard_port: Where its page is. Default: 8080, or a free one.
    """

    cores: Annotated[int, Meta(ge=1)] | None = None
    memory: Size | None = None
    executor_memory: Size | None = None
    driver_memory: Size | None = None
    conf: Tags = {}
    master_args: Words = ()
    worker_args: Words = ()
    worker_on_main: bool = True
    port: PortNumber | None = None
    dashboard_port: PortNumber | None = None


def _amount(text: str) -> str:
    """A size as Spark has it, in our words: 512m, 2g; MiB without a unit."""
    number, unit = text.rstrip("bB"), "MiB"
    if number[-1:].lower() in ("k", "m", "g", "t"):
        number, unit = number[:-1], f"{number[-1].upper()}iB"
    elif number != text:
        unit = "B"
    return f"{number}{unit}"


_ADDRESSES = Refused(
    ("--host", "--ip", "-h", "-i"),
    "each node listens at its own address",
    "leave it out; `network: cluster` gives each node an interface of its own",
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
        Refused(("--webui-port",), "nodes that share a network need one each, which Muster finds"),
        _ADDRESSES,
    ),
)
#: Properties that Muster says itself -> where to say them instead.
_PROPERTIES = {
    "spark.master": "leave it out: programs find the run's own master",
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
        """The master beside the program, a worker everywhere.

        Raises InvalidInput if no executor would fit on a worker, nobody would work, or words for
        a program contradict what Muster tells it.
        """
        options = _adopted(cluster.options)
        working = cluster.roles if options.worker_on_main else cluster.roles[1:]
        _check(options, working=bool(working))
        worker = _worker(options)
        main = RoleSetup(
            services=(_master(options), *((worker,) if options.worker_on_main else ())),
            gather=Joined(
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
            ),
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
                "OMP_NUM_THREADS": "1",  # a task is one of many
            },
            ports=(
                port_option("master", MASTER, options.port, "port"),
                port_option("dashboard", MASTER_UI, options.dashboard_port, "dashboard_port"),
                Port("worker-ui", WORKER_UI, each=True),
            ),
            roles=cluster.shared_out(main, serving),
            endpoints={"address": _ADDRESS, "dashboard": f"http://{_MAIN}:${{port.dashboard}}"},
        )


def _adopted(options: SparkOptions) -> SparkOptions:
    problems = [
        Problem(f"framework_options.conf.{name}", "is set by Muster", _PROPERTIES[name])
        for name in options.conf
        if name in _PROPERTIES
    ]
    made: SparkOptions = adopted(options, (_MASTER, _WORKER), problems, {})
    if problems:
        raise InvalidInput(*problems)
    return made


def _check(options: SparkOptions, *, working: bool) -> None:
    problems = []
    if options.memory is not None and (options.executor_memory or 0) > options.memory:
        text = "an executor would not fit on a worker, and the program would wait for ever"
        hint = "give at most what framework_options.memory says"
        problems.append(Problem("framework_options.executor_memory", text, hint))
    if not working:
        text = "the main node is all there is, and it is not to work"
        hint = "leave it out, or have more nodes"
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
        # one that does not find the master at once looks again after 5 to 15 s
        after=Answers(_MAIN, "${port.master}"),
        grace=3.0,
    )


_DEFAULTS = {
    # a worker that hangs, or is cut off, is noticed in 30 s instead of 60
    "SPARK_DAEMON_JAVA_OPTS": "-Dspark.worker.timeout=30",
}


def _spark_class(name: str) -> tuple[str, ...]:
    return ("${python}", "-m", "muster.node.spark", f"org.apache.spark.deploy.{name}")


def _submit_args(options: SparkOptions) -> str:
    """What pyspark gives spark-submit, which starts the program's JVM."""
    properties = {
        # the first tasks wait, 30 s at most, until every node can have some of them
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
    """As Java has it: whole mebibytes."""
    return f"{max(count >> 20, 1)}m"
