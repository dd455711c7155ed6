"""What the engine says of a plan before it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.conftest import PlanOf
from muster.engines.base import Engine
from muster.engines.oci import client
from muster.engines.registry import engine_named
from muster.errors import EngineError
from muster.storage.home import Home

IDS = 'compartment = "ocid1.c"\nproject = "ocid1.p"\n'


def engine(home: Path, settings: str = 'address = "10.0.0.5"\n') -> Engine:
    file = Home(home).engines / "cloud.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'kind = "oci"\n{IDS}{settings}')
    return engine_named("cloud", Home(home))


def problems(one: Engine, plan: Any) -> list[tuple[str, str]]:
    replicas = {group.name: group.replicas for group in plan.groups}
    found = one.check(plan, Path("/nowhere"), replicas)
    return [(problem.path, f"{problem.message} ({problem.hint})") for problem in found]


def test_a_plan_that_fits_has_no_problems(own_home: Path, plan_of: PlanOf) -> None:
    assert problems(engine(own_home), plan_of(nodes=2)) == []


def test_nodes_that_could_not_dial_are_refused_before_the_start(
    own_home: Path, plan_of: PlanOf
) -> None:
    [(path, text)] = problems(engine(own_home, ""), plan_of())
    assert path == "engine"
    assert "cannot reach this machine" in text
    assert "set `bucket` in the profile" in text and "or `address`" in text
    assert problems(engine(own_home, 'bucket = "oci://jobs@us"'), plan_of()) == []


def test_nodes_in_job_runs_of_their_own_need_a_subnet(own_home: Path, plan_of: PlanOf) -> None:
    single = 'address = "10.0.0.5"\nmulti_node = false\n'
    assert problems(engine(own_home, single), plan_of()) == []
    [(path, text)] = problems(engine(own_home, single), plan_of(nodes=2))
    assert path == "engine" and "reach each other only in a subnet" in text
    assert problems(engine(own_home, f'{single}subnet = "s"\n'), plan_of(nodes=2)) == []


def test_a_network_of_its_own_is_the_services(own_home: Path, plan_of: PlanOf) -> None:
    [(path, text)] = problems(engine(own_home), plan_of(network="isolated"))
    assert path == "network" and "are on a network of the service" in text


def test_the_preview_is_what_is_sent(own_home: Path, plan_of: PlanOf) -> None:
    shown = engine(own_home).preview(plan_of(nodes=2))
    body = json.loads(shown["CreateJob"])
    assert body["displayName"] == "muster-r1.0" and "jobNodeConfigurationDetails" in body


def test_each_replica_of_an_array_is_a_job(own_home: Path, plan_of: PlanOf) -> None:
    shown = engine(own_home).preview(plan_of(array={"n": "1..4"}, parallelism=2))
    assert [*shown] == ["CreateJob 0", "CreateJob 1"]


def test_each_node_may_be_a_job(own_home: Path, plan_of: PlanOf) -> None:
    one = engine(own_home, 'bucket = "oci://b@n"\nmulti_node = false\nsubnet = "s"\n')
    shown = one.preview(plan_of(nodes=2))
    assert [*shown] == ["CreateJob 0", "CreateJob 1"]
    assert "jobNodeConfigurationDetails" not in json.loads(shown["CreateJob 1"])
    text = "\n".join(one.explain(plan_of(nodes=2)))
    assert "a job run of its own" in text and "through a bucket" in text and "together" not in text


def test_what_the_service_does_itself_is_explained(own_home: Path, plan_of: PlanOf) -> None:
    text = "\n".join(engine(own_home).explain(plan_of(nodes=2)))
    assert "ends its job run" in text and "only with `subnet`" in text and "30 days" in text
    settings = 'address = "a"\nsubnet = "s"\nkeep_jobs = true\n'
    text = "\n".join(engine(own_home, settings).explain(plan_of(nodes=2, max_runtime="1h")))
    assert "subnet" not in text and "30 days" not in text and "deleted" not in text


def test_what_differs_is_noted(own_home: Path, plan_of: PlanOf) -> None:
    plan = plan_of(
        image="x.io/train:1",
        container={"user": "1000"},
        mounts=[{"source": "oci://b@n/a", "path": "/data"}],
    )
    notes = "\n".join(engine(own_home).notes(plan))
    assert "its image has to have Python 3.9" in notes and "only python is used" in notes
    assert "oci://b@n/a: the service mounts it at /data" in notes
    assert "is not there" not in notes


def test_without_the_sdk_it_says_what_to_install(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert "pip install 'muster-jobs[oci]'" in client.why_not_installed()
    assert engine(own_home).available() == client.why_not_installed()


def test_nothing_is_left_of_a_run_without_jobs(own_home: Path) -> None:
    one = engine(own_home)
    folder = Home(own_home).run_dir("r1").path
    folder.mkdir(parents=True)
    assert not one.left_behind("r1")
    one.clean_up("r1")


def test_a_damaged_record_is_not_taken_for_none(own_home: Path) -> None:
    one = engine(own_home)
    folder = Home(own_home).run_dir("r1").path
    folder.mkdir(parents=True)
    (folder / "oci.json").write_text("{")
    assert one.left_behind("r1")
    with pytest.raises(EngineError, match="the jobs of its nodes are not known"):
        one.clean_up("r1")
