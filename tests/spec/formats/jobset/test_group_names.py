"""Groups with names that Kubernetes refuses."""

from __future__ import annotations

from typing import Any

from muster.spec.formats.documents import documents
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.yaml_write import dump
from muster.spec.reader import spec_from_mapping


def job(**group: Any) -> dict[str, Any]:
    return {
        "name": "train",
        "image": "i",
        "node_groups": [
            {"name": "NODE_GROUP_1", "command": "x", "max_restarts": 2, **group},
            {"name": "eval", "command": "y", "depends_on": [{"group": "NODE_GROUP_1"}]},
        ],
        "success": {"groups": ["NODE_GROUP_1"]},
        "failure": {
            "max_restarts": 1,
            "rules": [{"action": "fail", "exit_codes": [3], "groups": ["NODE_GROUP_1"]}],
        },
    }


def test_groups_are_renamed_in_every_reference() -> None:
    made = write_jobset(spec_from_mapping(job()))
    assert "NODE_GROUP_1" not in dump(made.data)
    (document,) = documents(dump(made.data), "jobset.yaml")
    back = read_jobset(document).spec
    assert [group.name for group in back.node_groups] == ["node-group-1", "eval"]
    assert back.node_groups[1].depends_on[0].group == "node-group-1"
    assert back.success.groups == ("node-group-1",)
    assert {name for rule in back.failure.rules for name in rule.groups} == {"node-group-1"}


def test_losses_name_groups_as_they_were_written() -> None:
    losses = {one.path: one.why for one in write_jobset(spec_from_mapping(job())).losses}
    assert losses["node_groups[NODE_GROUP_1].name"] == "is named node-group-1 in the JobSet"
    assert "node_groups[NODE_GROUP_1].max_restarts" in losses
    assert not any("node-group-1" in path for path in losses)


def test_programs_see_the_group_name_as_it_was_written() -> None:
    group = {
        "node_env": {"G": "${group}-${index}", "TEXT": "$${group}"},
        "node_args": "--group ${group}",
    }
    made = write_jobset(spec_from_mapping(job(**group)))
    container = made.data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    env = {item["name"]: item.get("value") for item in container["env"]}
    assert env["G"] == "NODE_GROUP_1-$(MUSTER_INDEX)"
    assert env["TEXT"] == "${group}"
    assert container["args"] == ["--group", "NODE_GROUP_1"]


def test_a_display_name_is_lost() -> None:
    made = write_jobset(spec_from_mapping({**job(), "display_name": "Train the net"}))
    assert made.data["metadata"]["name"] == "train"
    losses = {one.path: one.why for one in made.losses}
    assert losses["display_name"] == "an object has one name there, `name`"
