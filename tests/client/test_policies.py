"""Policies, groups and compartments in Python, here and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import muster
from muster.errors import Conflict, InvalidInput
from support.teams import Teams, serving_teams

READ = "Allow group guests to read data-science-jobs in compartment vision"


@pytest.fixture(params=["embedded", "http"])
def teams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Teams]:
    with serving_teams() as made:
        monkeypatch.delenv("MUSTER_URL", raising=False)
        if request.param == "http":
            monkeypatch.setenv("MUSTER_URL", f"http://127.0.0.1:{made.port}")
            monkeypatch.setenv("MUSTER_TOKEN", made.token("root"))
        yield made


@pytest.fixture
def policies(teams: Teams) -> Iterator[muster.Policies]:
    with muster.Policies("vision") as made:
        yield made


def test_policies(policies: muster.Policies) -> None:
    policies.create_group("guests")
    made = policies.create_policy("train", [READ], description="Guests")
    assert (made.compartment, made.statements, made.version) == ("vision", (READ,), 1)
    assert datetime.now(UTC) - made.created_at < timedelta(minutes=1)
    edited = policies.edit_policy(made, statements=[READ, READ.replace("jobs", "job-runs")])
    assert (edited.version, edited.description) == (2, "Guests")
    with pytest.raises(Conflict):
        policies.edit_policy(made, description="x")
    assert [one.version for one in policies.history(edited)] == [2, 1]
    assert {one.name for one in policies.policies()} == {"train", "job-runs"}
    assert "train" in str(policies.policies("vision"))
    assert ">train<" in policies.policy("train")._repr_html_()
    assert policies.policy("train").to_dict()["statements"] == edited.statements
    with pytest.raises(InvalidInput, match="'raed' is not a verb"):
        policies.create_policy("wrong", [READ.replace("read", "raed")])
    preview = policies.preview_policy("train", None, since=timedelta(days=1))
    assert preview.examined > 0 and not preview.changed
    policies.delete_policy(edited)
    assert [one.name for one in policies.policies("vision")] == []


def test_explanations(policies: muster.Policies) -> None:
    policies.create_group("guests")
    policies.create_policy("train", [READ])
    found = policies.explain("group:guests", "read", "data-science-jobs")
    assert found.allowed and found.compartment == "vision"
    assert {one.statement and one.statement.place for one in found.answers} == {"vision/train#1"}
    where = {"target.bucket.name": "data"}
    refused = policies.explain("sam", "OBJECT_DELETE", "objects", compartment="sound", where=where)
    assert not refused.allowed
    assert "OBJECT_DELETE" in str(refused.answers[0].missing)


def test_groups(policies: muster.Policies) -> None:
    made = policies.create_group("guests", "For a week")
    assert (made.name, made.description, made.users) == ("guests", "For a week", None)
    assert policies.add_to_group("guests", "sam")
    assert policies.group("guests").users == ("sam",)
    assert policies.group("vision-admin").users == ("anouk",)
    assert [one.name for one in policies.groups()] == ["guests"]
    assert policies.remove_from_group("guests", "sam")
    policies.delete_group("guests")


def test_dynamic_groups(policies: muster.Policies) -> None:
    made = policies.create_dynamic_group("jobs", "resource.type = 'datasciencejobrun'")
    edited = policies.edit_dynamic_group(made, rule="resource.type = 'instance'")
    assert (edited.version, edited.rule) == (2, "resource.type = 'instance'")
    assert policies.dynamic_group("jobs").runs == ()
    assert not policies.preview_dynamic_group("jobs", None).changed
    assert [one.name for one in policies.dynamic_groups()] == ["jobs"]
    policies.delete_dynamic_group("jobs")


def test_compartments(policies: muster.Policies) -> None:
    made = policies.create_compartment("cameras", parent="vision", description="North")
    assert (made.parent, made.description) == ("vision", "North")
    assert policies.move_compartment("cameras", "default").parent == "default"
    parents = {one.name: one.parent for one in policies.compartments()}
    assert parents == {"default": "", "vision": "default", "sound": "default", "cameras": "default"}
    policies.delete_compartment("cameras")


def test_suggestions(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: train\ncommand: 'true'\nimage: team/trainer:1\n")
    found = muster.suggest_policy(file, project="vision", dynamic_group="runs")
    assert [one.text for one in found.for_runs] == [
        "Allow dynamic-group runs to read repos in compartment vision where "
        "target.repo.name = 'docker.io/team/trainer'"
    ]
    assert str(found).startswith("# What job train needs in project vision.")
