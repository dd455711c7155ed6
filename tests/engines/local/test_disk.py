"""resources.disk: checked before the start, measured while nodes run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.errors import InvalidInput

WRITES = "head -c {} /dev/zero > $PLACE/big"
SAID = "node-0 (group workers) uses more disk than its resources.disk, which is not enforced here"


def refused(**spec: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        muster.run(command="true", **spec)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.shows("jobs/creation-block-storage")
def test_what_there_is_no_room_for_is_refused_with_figures(client: Client) -> None:
    (text,) = refused(nodes=3, resources={"disk": "900TiB"})
    assert "resources.disk: all nodes together may use 2764800.0 GiB" in text
    assert f"{client.service.home.root} has" in text
    assert "set MUSTER_HOME to a larger disk" in text
    (text,) = refused(resources={"disk": 50})
    assert "50 bytes are too few for any program (did you mean 50GiB?)" in text
    (text,) = refused(resources={"disk": "lots"})
    assert "resources.disk" in text
    assert client.runs() == []


@pytest.mark.shows("jobs/job-block-storage", "cluster-design/job-storage")
@pytest.mark.parametrize("place", [".", "$TMPDIR", "$MUSTER_MOUNT_MINE"])
def test_a_node_that_uses_more_is_named(client: Client, place: str) -> None:
    script = f"PLACE={place}; {WRITES.format(3 << 20)}"
    run = muster.run(
        command=["sh", "-c", script],
        resources={"disk": "2MiB"},
        mounts=[{"source": "scratch:node/mine"}],
    ).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert SAID in [record.message for record in run.logs(streams=["service"])]
    assert SAID in run.notes
    assert [entry.kind for entry in run.events()].count("disk") == 1


def test_one_that_keeps_to_it_is_not(client: Client) -> None:
    script = f"PLACE=.; {WRITES.format(1 << 20)}; head -c 3000000 /dev/zero"
    run = muster.run(command=["sh", "-c", script], resources={"disk": "2MiB"}).wait(60)
    assert run.state == "SUCCEEDED", run.details
    assert "disk" not in [entry.kind for entry in run.events()]
    (note,) = run.notes
    assert "resources.disk is not enforced here" in note


def test_it_is_told_while_the_node_runs(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"PLACE=.; {WRITES.format(3 << 20)}; read line < {gate}"
    run = muster.run(command=["sh", "-c", script], resources={"disk": "2MiB"})
    told = (record.message for record in run.logs(follow=True, streams=["service"]))
    assert SAID in told
    gate.write_text("go on\n")
    assert run.wait(60).state == "SUCCEEDED"


def test_jobs_from_before_it_was_a_field_are_the_same_jobs(client: Client) -> None:
    """What is left at its default makes no Job another."""
    from msgspec import to_builtins

    from muster.spec.models import JobSpec, Resources
    from muster.versions import _digest

    said = to_builtins(JobSpec(name="a", resources=Resources(memory=1 << 30)))
    before = {**said, "resources": {k: v for k, v in said["resources"].items() if k != "disk"}}
    assert _digest("a", said, None) == _digest("a", before, None)
    limited = to_builtins(JobSpec(name="a", resources=Resources(memory=1 << 30, disk=1 << 30)))
    assert _digest("a", limited, None) != _digest("a", said, None)
