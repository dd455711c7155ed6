"""resources.disk: checked before the start, measured while nodes run."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import muster
from muster.client.client import Client
from muster.engines.local import disk_image
from muster.errors import InvalidInput

WRITES = "head -c {} /dev/zero > $PLACE/big"
SAID = (
    "node-0 (group workers) uses more disk (3MiB or more) than its resources.disk of 2MiB, which "
    "is not enforced here"
)


def refused(**spec: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        muster.run(command="true", **spec)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.shows("jobs/creation-block-storage")
def test_what_there_is_no_room_for_is_refused_with_figures(client: Client) -> None:
    (text,) = refused(nodes=3, resources={"disk": "900TiB"})
    assert "resources.disk: all nodes together may use 2.6PiB" in text
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
    assert "resources.disk is not enforced: what nodes use is measured" in note


def test_it_is_told_while_the_node_runs(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"PLACE=.; {WRITES.format(3 << 20)}; read line < {gate}"
    run = muster.run(command=["sh", "-c", script], resources={"disk": "2MiB"})
    told = (record.message for record in run.logs(follow=True, streams=["service"]))
    assert SAID in told
    gate.write_text("go on\n")
    assert run.wait(60).state == "SUCCEEDED"


def test_what_a_run_has_written_is_not_asked_for_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose nodes have used most of their disk can be resumed, and replicas need room."""
    group = {"workers": {"replicas": 1, "max_replicas": 4}}
    run = muster.run(
        command=["sh", "-c", "exec sleep 1000"], node_groups=group, resources={"disk": "64MiB"}
    )
    client.service.suspend(run.id)
    run.wait(60)
    record = client.service.run(run.id)
    free = SimpleNamespace(f_bavail=62 << 20, f_frsize=1, f_files=0, f_favail=0)
    monkeypatch.setattr("muster.engines.local.disk.os.statvfs", lambda _: free)
    with pytest.raises(InvalidInput, match="all nodes together may use 64MiB"):
        client.service.redraft(record, None)
    with pytest.raises(InvalidInput, match="the added nodes may use 192MiB"):
        client.service.scale(run.id, "workers", 4)
    node = client.service.home.run_dir(run.id).node(0)
    node.mkdir(parents=True, exist_ok=True)
    (node / "big").write_bytes(b"x" * (3 << 20))
    assert client.service.redraft(record, None) is None
    run.cancel("enough").wait(60)


# --- a disk of the node's own

images = pytest.mark.skipif(disk_image.impossible() is not None, reason="needs root and loop")


def loops(of: Path) -> list[str]:
    """Loop devices whose file is, or was, below a folder."""
    files = glob.glob("/sys/block/loop*/loop/backing_file")
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            found.append(Path(file).read_text())
    return [file for file in found if file.startswith(str(of))]


def free_of_loops(of: Path) -> bool:
    """The kernel lets go of them a moment after the last process is gone."""
    deadline = time.monotonic() + 30
    while loops(of) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not loops(of)


@images
@pytest.mark.parametrize("place", [".", "$TMPDIR", "$MUSTER_MOUNT_MINE"])
def test_a_node_cannot_use_more_than_its_disk(client: Client, place: str) -> None:
    script = f"PLACE={place}; {WRITES.format(30 << 20)}"
    run = muster.run(
        command=["sh", "-c", script],
        resources={"disk": "20MiB", "disk_image": True},
        mounts=[{"source": "scratch:node/mine"}],
    ).wait(60)
    assert run.state == "FAILED"
    assert run.cause is not None
    head, message = run.cause["message"].split("\n", 1)
    assert head == "its disk was full (resources.disk: 20MiB):"
    assert "No space left on device" in message
    assert run.notes == []
    assert free_of_loops(client.service.home.root)


@images
def test_what_fits_is_there_and_restarts_in_place_keep_it(client: Client, tmp_path: Path) -> None:
    (tmp_path / "p.sh").write_text(
        "ls | grep -v p.sh; touch kept; echo $(df --output=size . | tail -1)\n"
        "test $MUSTER_ATTEMPT = 1\n"
    )
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "artifact: p.sh\nresources: {disk: 32MiB, disk_image: true}\nfailure: {max_restarts: 1}\n"
    )
    run = muster.run(spec).wait(60)
    assert run.state == "SUCCEEDED", run.details
    said = [r.message for r in run.logs(attempt="all", streams=["stdout"])]
    assert said[1:2] == ["kept"]
    assert all(16_000 < int(size) < 32_768 for size in (said[0], said[2]))
    assert free_of_loops(client.service.home.root)


@images
def test_nothing_of_it_is_left_when_all_is_killed(client: Client) -> None:
    run = muster.run(
        command=["sh", "-c", "echo up; exec sleep 1000"],
        nodes=2,
        resources={"disk": "20MiB", "disk_image": True},
    )
    for rank in (0, 1):
        assert next(run.logs(follow=True, ranks=[rank])).message == "up"
    folder = client.service.home.run_dir(run.id)
    assert len(loops(folder.path)) == 2
    assert not (folder.node(0) / "disk.img").exists(), "it has no name any more"
    os.kill(int(folder.lease.read_text()), 9)
    assert run.wait(60).state == "FAILED"
    assert free_of_loops(client.service.home.root)
    assert str(folder.path) not in Path("/proc/self/mountinfo").read_text()


def test_a_disk_that_cannot_be_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = refused(resources={"disk_image": True})
    assert "resources.disk_image: nothing says how large it is to be" in text
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (text,) = refused(resources={"disk": "1GiB", "disk_image": True})
    assert "resources.disk_image: is not possible here: only root may mount one" in text
    assert "run muster as root" in text
    assert client.runs() == []


@images
def test_a_disk_that_is_too_small_is_refused(client: Client) -> None:
    (text,) = refused(resources={"disk": "1MiB", "disk_image": True})
    assert "1048576 bytes are too few for any program (at least 16MiB)" in text


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
