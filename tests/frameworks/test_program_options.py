"""Arguments that users add to a framework's programs, whose options Muster sets as well."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.frameworks.base import Cluster, Role, Setup
from muster.frameworks.registry import get_framework, read_options


def setup(name: str, env: dict[str, str] | None = None, **options: Any) -> Setup:
    framework = get_framework(name)
    roles = (Role("main", 0, 1, env or {}), Role("workers", 1, 2, {}))
    return framework.setup(Cluster(roles, 1, read_options(framework, options)))


def words(made: Setup, group: str) -> list[str]:
    return [word for service in made.roles[group].services for word in service.command]


#: framework, option with arguments, arguments; Muster's option that they equal, its value
SAME = [
    ("dask", "scheduler_args", ["--port", "9000"], "port", 9000),
    ("dask", "scheduler_args", ["--port=9000"], "port", 9000),
    ("dask", "scheduler_args", ["--dashboard-address", ":9001"], "dashboard_port", 9001),
    ("dask", "scheduler_args", ["--dashboard-address=9001"], "dashboard_port", 9001),
    ("dask", "scheduler_args", ["--dashboard-address", "0.0.0.0:9001"], "dashboard_port", 9001),
    ("dask", "worker_args", ["--nthreads", "3"], "threads", 3),
    ("dask", "worker_args", ["--nthreads=3"], "threads", 3),
    ("dask", "worker_args", ["--worker-port", "8700:8800"], "worker_ports", "8700-8800"),
    ("dask", "worker_args", ["--nanny-port=3000"], "nanny_ports", "3000-3000"),
    ("ray", "head_args", ["--port", "9000"], "port", 9000),
    ("ray", "head_args", ["--port=9000"], "port", 9000),
    ("ray", "head_args", ["--dashboard-port", "9001"], "dashboard_port", 9001),
    ("ray", "head_args", ["--include-dashboard", "false"], "dashboard", False),
    ("ray", "head_args", ["--include-dashboard=False"], "dashboard", False),
    ("spark", "master_args", ["--port", "9000"], "port", 9000),
    ("spark", "master_args", ["-p", "9000"], "port", 9000),
    ("spark", "master_args", ["--webui-port", "9001"], "dashboard_port", 9001),
    ("spark", "worker_args", ["--cores", "3"], "cores", 3),
    ("spark", "worker_args", ["-c", "3"], "cores", 3),
    ("spark", "worker_args", ["--memory", "2g"], "memory", "2GiB"),
    ("spark", "worker_args", ["-m", "512m"], "memory", "512MiB"),
    ("spark", "worker_args", ["--memory=512"], "memory", "512MiB"),
    ("spark", "worker_args", ["--memory", "1073741824b"], "memory", "1GiB"),
]


@pytest.mark.parametrize(("framework", "field", "given", "option", "value"), SAME)
def test_an_argument_that_equals_an_option_sets_the_option(
    framework: str, field: str, given: list[str], option: str, value: Any
) -> None:
    assert setup(framework, **{field: given}) == setup(framework, **{option: value})


#: framework, option with arguments, arguments that repeat what Muster sets
REPEATED = [
    ("dask", "scheduler_args", ["--dashboard"]),
    ("dask", "scheduler_args", ["--protocol", "tcp"]),
    ("dask", "worker_args", ["--protocol=tcp"]),
    ("ray", "head_args", ["--head", "--block"]),
    ("ray", "head_args", ["--dashboard-host", "0.0.0.0"]),
    ("ray", "worker_args", ["--block"]),
]


@pytest.mark.parametrize(("framework", "field", "given"), REPEATED)
def test_arguments_that_repeat_defaults_change_nothing(
    framework: str, field: str, given: list[str]
) -> None:
    assert setup(framework, **{field: given}) == setup(framework)


#: framework, option with arguments, arguments; the error names the first
REFUSED = [
    *(
        ("dask", field, [name, "x"])
        for field in ("scheduler_args", "worker_args")
        for name in ("--host", "--interface", "--tls-ca-file", "--tls-cert", "--tls-key")
    ),
    ("dask", "scheduler_args", ["--no-dashboard"]),
    ("dask", "scheduler_args", ["--dashboard-prefix", "x"]),
    ("dask", "scheduler_args", ["--dashboard-address", "10.0.0.1:8787"]),
    ("dask", "scheduler_args", ["--protocol", "tls"]),
    ("dask", "scheduler_args", ["--protocol=ucx"]),
    ("dask", "scheduler_args", ["--port", "none"]),
    ("dask", "scheduler_args", ["--port", "0"]),
    ("dask", "scheduler_args", ["--port"]),
    ("dask", "worker_args", ["--nworkers", "2"]),
    ("dask", "worker_args", ["--port", "8786"]),
    ("dask", "worker_args", ["--name=x"]),
    ("dask", "worker_args", ["--scheduler-file", "x"]),
    ("dask", "worker_args", ["--listen-address", "x"]),
    ("dask", "worker_args", ["--contact-address", "x"]),
    ("dask", "worker_args", ["--nthreads", "many"]),
    *(
        ("ray", field, [name, "1"])
        for field in ("head_args", "worker_args")
        for name in (
            *("--address", "--node-ip-address", "--node-name", "--temp-dir"),
            *("--dashboard-agent-listen-port", "--dashboard-agent-grpc-port"),
            *("--metrics-export-port", "--runtime-env-agent-port"),
            *("--min-worker-port", "--max-worker-port"),
        )
    ),
    ("ray", "head_args", ["--dashboard-host", "127.0.0.1"]),
    ("ray", "head_args", ["--ray-client-server-port=10001"]),
    ("ray", "worker_args", ["--head"]),
    ("ray", "worker_args", ["--port", "1"]),
    *(
        ("spark", field, [name, "x"])
        for field in ("master_args", "worker_args")
        for name in ("--host", "-h", "--ip", "-i")
    ),
    ("spark", "worker_args", ["--webui-port", "1"]),
    ("spark", "worker_args", ["--memory", "much"]),
]


@pytest.mark.parametrize(("framework", "field", "given"), REFUSED)
def test_arguments_that_contradict_muster_are_refused_by_name(
    framework: str, field: str, given: list[str]
) -> None:
    with pytest.raises(InvalidInput) as error:
        setup(framework, **{field: ["--unknown", *given]})
    (problem,) = error.value.problems
    assert problem.path == f"framework_options.{field}"
    assert given[0].partition("=")[0] in problem.message
    assert problem.hint


#: framework, option with arguments, arguments for the program, the group that runs it
PASSED = [
    ("dask", "scheduler_args", ["--idle-timeout", "60"], "main"),
    ("dask", "worker_args", ["--memory-limit", "1GiB"], "workers"),
    ("dask", "worker_args", ["--death-timeout", "10", "--no-nanny"], "workers"),
    ("ray", "head_args", ["--num-cpus", "0"], "main"),
    ("ray", "head_args", ["--num-gpus=1", "--object-store-memory", "80000000"], "main"),
    ("ray", "worker_args", ["--resources", '{"big": 1}'], "workers"),
    ("spark", "master_args", ["--properties-file", "x"], "main"),
    ("spark", "worker_args", ["-d", "/scratch"], "workers"),
]


@pytest.mark.parametrize(("framework", "field", "given", "group"), PASSED)
def test_other_arguments_are_passed_to_the_program(
    framework: str, field: str, given: list[str], group: str
) -> None:
    """They follow Muster's arguments: the last of several takes precedence."""
    found = words(setup(framework, **{field: given}), group)
    at = len(found) - found[::-1].index(given[0]) - 1
    assert found[at : at + len(given)] == given


def test_arguments_after_two_dashes_are_not_checked() -> None:
    found = words(setup("dask", scheduler_args=["--", "--port", "x"]), "main")
    assert found[found.index("--") :][:3] == ["--", "--port", "x"]


def test_a_dashboard_address_enables_the_dashboard_of_workers() -> None:
    assert "--no-dashboard" in words(setup("dask"), "workers")
    made = words(setup("dask", worker_args=["--dashboard-address", ":0"]), "workers")
    assert "--no-dashboard" not in made


def test_conflicting_values_of_a_setting_are_refused() -> None:
    with pytest.raises(InvalidInput) as error:
        setup("dask", port=9001, scheduler_args=["--port", "9000"])
    assert "--port is 9000, but framework_options.port is 9001" in str(error.value)
    env = {"DASK_SCHEDULER_PORT": "9001"}
    with pytest.raises(InvalidInput) as error:
        setup("dask", env, scheduler_args=["--port", "9000"])
    assert "--port is 9000, but env.DASK_SCHEDULER_PORT is 9001" in str(error.value)
    with pytest.raises(InvalidInput) as error:
        setup("dask", env, port=9000)
    assert "port: is 9000, but env.DASK_SCHEDULER_PORT is 9001" in str(error.value)


def test_a_value_may_be_given_twice() -> None:
    env = {"DASK_SCHEDULER_PORT": "9000"}
    expected = setup("dask", port=9000)
    assert setup("dask", port=9000, scheduler_args=["--port", "9000"]) == expected
    assert setup("dask", env, port=9000) == expected
    assert setup("dask", env, scheduler_args=["--port=9000"]).ports[0].number == 9000
    last = ["-p", "1", "--port", "9000"]
    assert setup("spark", master_args=last) == setup("spark", port=9000)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        setup("ray", head_args=["--address", "x", "--temp-dir", "y"], worker_args=["--head"])
    assert len(error.value.problems) == 3


@pytest.mark.parametrize(
    "name",
    [
        *("spark.master", "spark.executor.memory", "spark.driver.memory", "spark.local.dir"),
        *("spark.driver.host", "spark.driver.bindAddress"),
    ],
)
def test_properties_that_muster_sets_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        setup("spark", conf={name: "x"})
    (problem,) = error.value.problems
    assert problem.path == f"framework_options.conf.{name}"


def test_the_memory_of_a_node_is_divided() -> None:
    assert words(setup("dask"), "workers").count("${memory.each}") == 1
    ray = words(setup("ray"), "workers")
    assert ray[ray.index("--object-store-memory") + 1] == "${memory.30}"
    assert ray[ray.index("--memory") + 1] == "${memory.70}"
    spark = setup("spark")
    assert "${memory.60}b" in words(spark, "workers")
    assert "--executor-memory '${memory.60}b'" in spark.defaults["PYSPARK_SUBMIT_ARGS"]
