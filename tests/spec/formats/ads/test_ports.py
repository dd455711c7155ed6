"""Ports that ADS documents, and the fields that set others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.client.client import Client
from muster.spec.override_flags import changes_from_flags
from support.ads import (
    START_9999,
    distributed,
    prepare_problems,
    read,
)


@pytest.mark.shows("ads-configuration/dask-scheduler-port")
def test_the_scheduler_listens_on_the_documented_port(folder: Path) -> None:
    assert read(folder, distributed())[0].env["DASK_SCHEDULER_PORT"] == "8786"
    env = [{"name": "DASK_SCHEDULER_PORT", "value": 9000}]
    spec, _ = read(folder, distributed(cluster={"config": {"env": env}}))
    assert spec.env["DASK_SCHEDULER_PORT"] == "9000"


def test_the_port_can_be_set_in_start_options(folder: Path) -> None:
    for where in ({"config": START_9999}, {"main": {"config": START_9999}}):
        spec, _ = read(folder, distributed(cluster=where))
        assert "DASK_SCHEDULER_PORT" not in spec.env
        assert spec.framework_options["scheduler_args"] == ["--port", "9999"]
        assert "worker_args" not in spec.framework_options, "workers do not have the option"
        prepared = Client(folder / "home").prepare(folder / "ads.yaml", changes_from_flags())
        (port,) = [port for port in prepared.plan.ports if port.name == "scheduler"]
        assert (port.number, port.fixed) == (9999, True)


def planned_port(folder: Path, kind: str, *variables: tuple[str, str]) -> Any:
    env = [{"name": name, "value": value} for name, value in variables]
    read(folder, distributed(kind, cluster={"config": {"env": env}}))
    prepared = Client(folder / "home").prepare(folder / "ads.yaml", changes_from_flags())
    (port,) = prepared.plan.ports
    return port


@pytest.mark.shows(
    "ads-configuration/pytorch-port",
    "ads-configuration/tensorflow-port",
    "ads-configuration/tensorflow-port-changed",
)
@pytest.mark.parametrize(
    ("kind", "number", "variable"),
    [("pytorch", 29400, "MASTER_PORT"), ("tensorflow", 12345, "WORKER_PORT")],
)
def test_nodes_listen_on_the_documented_port_unless_a_variable_sets_it(
    folder: Path, kind: str, number: int, variable: str
) -> None:
    port = planned_port(folder, kind)
    assert (port.number, port.preferred, port.fixed) == (number, True, False)
    port = planned_port(folder, kind, (variable, "2345"))
    assert (port.number, port.fixed) == (2345, True)


@pytest.mark.shows("ads-configuration/dask-scheduler-port", "ads-configuration/dask-dashboard-port")
def test_dask_uses_the_documented_ports(folder: Path) -> None:
    read(folder, distributed())
    prepared = Client(folder / "home").prepare(folder / "ads.yaml", changes_from_flags())
    found = {port.name: (port.number, port.fixed, port.preferred) for port in prepared.plan.ports}
    assert found == {"scheduler": (8786, True, False), "dashboard": (8787, False, True)}


@pytest.mark.parametrize(("value", "refused"), [("9999", False), ("9000", True)])
def test_conflicting_ports_are_refused(folder: Path, value: str, refused: bool) -> None:
    env = [{"name": "DASK_SCHEDULER_PORT", "value": value}]
    data = distributed(cluster={"config": {**START_9999, "env": env}})
    if refused:
        (problem,) = prepare_problems(folder, data)
        assert problem.message == "--port is 9999, but env.DASK_SCHEDULER_PORT is 9000"
    else:
        read(folder, data)
        Client(folder / "home").prepare(folder / "ads.yaml", changes_from_flags())
