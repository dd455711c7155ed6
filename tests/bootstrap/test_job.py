"""The job that parameters describe."""

from __future__ import annotations

import pytest

from muster.bootstrap.job import arranged_job
from muster.bootstrap.parameters import Parameters
from muster.bootstrap.roster import Member, description


@pytest.mark.shows("cluster-design/run-args", "cluster-design/run-named-args")
def test_arguments_reach_the_program_and_its_variables() -> None:
    parameters = Parameters(
        *("MAIN", "/shared", "dask", "job", "m"),
        entry_point="a.py",
        args=("x",),
        kwargs=("--k", "1"),
        start_args=("--worker-port", "8700:8800"),
        code_dir="/code",
    )
    spec = arranged_job(parameters, {}).spec
    assert spec.command is not None and spec.command[-4:] == ("/code/a.py", "x", "--k", "1")
    env = spec.node_groups[0].env
    values = {name: env.get(f"OCI__{name}") for name in ("ENTRY_SCRIPT_ARGS", "START_ARGS")}
    assert values == {"ENTRY_SCRIPT_ARGS": "x", "START_ARGS": "--worker-port 8700:8800"}
    assert env["OCI__ENTRY_SCRIPT_KWARGS"] == "--k 1"


def worker(framework: str, *start_args: str) -> Parameters:
    return Parameters("WORKER", "/shared", framework, "job", "w", start_args=start_args)


@pytest.mark.shows(
    "ads-configuration/dask-worker-ports",
    "ads-configuration/dask-nanny-ports",
    "cluster-design/worker-ports",
)
@pytest.mark.parametrize(
    ("start_args", "workers", "nannies"),
    [
        ((), "8700:8800", "3000:3100"),
        (("--worker-port", "9000:9010"), "9000:9010", "3000:3100"),
        (("--nanny-port=4000",), "8700:8800", "4000:4000"),
    ],
)
def test_dask_s_workers_listen_where_a_firewall_expects_them(
    start_args: tuple[str, ...], workers: str, nannies: str
) -> None:
    arranged = arranged_job(worker("dask", *start_args), {"WORKER_PORT": "1"})
    (service,) = arranged.role("workers").services
    words = list(service.command)
    assert words[words.index("--worker-port") + 1] == workers
    assert words[words.index("--nanny-port") + 1] == nannies


@pytest.mark.shows(
    "ads-configuration/pytorch-port",
    "ads-configuration/tensorflow-port",
    "ads-configuration/tensorflow-port-changed",
)
@pytest.mark.parametrize(
    ("framework", "variable", "usual"),
    [("pytorch", "MASTER_PORT", 29400), ("tensorflow", "WORKER_PORT", 12345)],
)
def test_ports_are_the_documented_ones_unless_a_variable_sets_others(
    framework: str, variable: str, usual: int
) -> None:
    given = {}
    for text in (None, "2300"):
        environ = {variable: text} if text else {}
        (port,) = arranged_job(worker(framework), environ).setup.ports
        assert port.fixed is bool(text), "a port that was set is kept even if it is in use"
        given[text] = port.number
        main = Member("m", "MAIN", "10.0.0.1", "h", {port.name: port.number})
        assert description(main, framework, "/x")[variable] == str(port.number)
    assert given == {None: usual, "2300": 2300}
