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
from muster.engines.local import node_folders
from muster.engines.local.capacity import check_disk
from muster.errors import InvalidInput
from muster.service.requests import prepare_resume
from support.embedded import embedded
from support.sessions import make_plan

WRITES = "head -c {} /dev/zero > $PLACE/big"
EXCEEDED = (
    "node-0 (group workers) uses more disk (3MiB or more) than its resources.disk of 2MiB, which "
    "is not enforced here"
)


def refused(**spec: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        muster.run(command="true", **spec)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.shows("jobs/creation-block-storage")
def test_nodes_that_need_more_disk_than_is_free_are_refused_with_figures(client: Client) -> None:
    (text,) = refused(nodes=3, resources={"disk": "900TiB"})
    assert "resources.disk: all nodes together may use 2.6PiB" in text
    assert f"{embedded(client).home.root} has" in text
    assert "set MUSTER_HOME to a larger disk" in text
    (text,) = refused(resources={"disk": 1})
    assert "1 bytes are too few for any program (did you mean 1GiB?)" in text
    (text,) = refused(resources={"disk": "lots"})
    assert "resources.disk" in text
    assert client.runs() == []


def test_a_home_on_a_disk_without_a_size_is_not_called_full(tmp_path: Path) -> None:
    assert check_disk(make_plan("x", 1), Path("/proc/x"), {"workers": 1}) == []


@pytest.mark.shows("jobs/job-block-storage", "cluster-design/job-storage")
@pytest.mark.parametrize("place", [".", "$TMPDIR", "$MUSTER_MOUNT_MINE"])
def test_a_node_that_uses_more_than_its_disk_is_reported(client: Client, place: str) -> None:
    script = f"PLACE={place}; {WRITES.format(3 << 20)}"
    run = muster.run(
        command=["sh", "-c", script],
        working_dir=".",
        resources={"disk": "2MiB"},
        mounts=[{"source": "scratch:node/mine"}],
    ).wait(240)
    assert run.state == "SUCCEEDED", run.details
    assert EXCEEDED in [record.message for record in run.logs(streams=["service"])]
    assert EXCEEDED in run.notes
    assert [entry.kind for entry in run.events()].count("disk") == 1


def test_a_node_within_its_disk_is_not_reported(client: Client) -> None:
    script = f"PLACE=.; {WRITES.format(1 << 20)}; head -c 3000000 /dev/zero"
    run = muster.run(
        command=["sh", "-c", script], working_dir=".", resources={"disk": "2MiB"}
    ).wait(240)
    assert run.state == "SUCCEEDED", run.details
    assert "disk" not in [entry.kind for entry in run.events()]
    (note,) = run.notes
    assert "resources.disk is not enforced: disk usage is measured" in note


def test_disk_usage_is_reported_while_the_node_runs(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"PLACE=.; {WRITES.format(3 << 20)}; read line < {gate}"
    run = muster.run(command=["sh", "-c", script], working_dir=".", resources={"disk": "2MiB"})
    messages = (record.message for record in run.logs(follow=True, streams=["service"]))
    assert EXCEEDED in messages
    gate.write_text("exit\n")
    assert run.wait(240).state == "SUCCEEDED"


def test_disk_that_a_run_already_uses_is_not_required_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose nodes have used most of their disk can be resumed; added replicas need theirs."""
    group = {"workers": {"replicas": 1, "max_replicas": 4}}
    run = muster.run(
        command=["sh", "-c", "exec sleep 1000"], node_groups=group, resources={"disk": "64MiB"}
    )
    embedded(client).suspend(run.id)
    run.wait(240)
    context, record = embedded(client).context, embedded(client).run(run.id)
    free = SimpleNamespace(f_blocks=9, f_bavail=62 << 20, f_frsize=1, f_files=0, f_favail=0)
    monkeypatch.setattr("muster.engines.local.capacity.os.statvfs", lambda _: free)
    with pytest.raises(InvalidInput, match="all nodes together may use 64MiB"):
        prepare_resume(context, record, None)
    with pytest.raises(InvalidInput, match="the added nodes may use 192MiB"):
        embedded(client).scale(run.id, "workers", 4)
    node = embedded(client).home.run_dir(run.id).node(0)
    node.mkdir(parents=True, exist_ok=True)
    (node / "big").write_bytes(b"x" * (3 << 20))
    assert prepare_resume(context, record, None) is None
    run.cancel("enough").wait(240)


# --- a disk image for each node

images = pytest.mark.skipif(
    node_folders.disk_image_unavailable() is not None, reason="needs root and loop"
)


def loops(of: Path) -> list[str]:
    """The files below a folder that loop devices use, also removed ones."""
    files = glob.glob("/sys/block/loop*/loop/backing_file")
    found = []
    for file in files:
        with contextlib.suppress(OSError):
            found.append(Path(file).read_text())
    return [file for file in found if file.startswith(str(of))]


def free_of_loops(of: Path) -> bool:
    """Whether no loop device is left; the kernel detaches them after the last process has ended."""
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
        working_dir=".",
        resources={"disk": "20MiB", "disk_image": True},
        mounts=[{"source": "scratch:node/mine"}],
    ).wait(240)
    assert run.state == "FAILED"
    assert run.cause is not None
    head, message = run.cause["message"].split("\n", 1)
    assert head == "its disk was full (resources.disk: 20MiB):"
    assert "No space left on device" in message
    assert run.notes == []
    assert free_of_loops(embedded(client).home.root)


@images
def test_a_disk_image_keeps_its_files_over_restarts_in_place(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "p.sh").write_text(
        "ls | grep -v p.sh; touch kept; echo $(df --output=size . | tail -1)\n"
        "test $MUSTER_ATTEMPT = 1\n"
    )
    spec = tmp_path / "job.yaml"
    spec.write_text(
        "artifact: p.sh\nresources: {disk: 32MiB, disk_image: true}\nfailure: {max_restarts: 1}\n"
    )
    run = muster.run(spec).wait(240)
    assert run.state == "SUCCEEDED", run.details
    messages = [r.message for r in run.logs(attempt="all", streams=["stdout"])]
    assert messages[1:2] == ["kept"]
    assert all(16_000 < int(size) < 32_768 for size in (messages[0], messages[2]))
    assert free_of_loops(embedded(client).home.root)


@images
def test_disk_images_are_removed_when_the_supervisor_is_killed(client: Client) -> None:
    run = muster.run(
        command=["sh", "-c", "echo up; exec sleep 1000"],
        nodes=2,
        resources={"disk": "20MiB", "disk_image": True},
    )
    for rank in (0, 1):
        assert next(run.logs(follow=True, ranks=[rank])).message == "up"
    folder = embedded(client).home.run_dir(run.id)
    assert len(loops(folder.path)) == 2
    assert not (folder.node(0) / "disk.img").exists(), "the file is removed once it is mounted"
    os.kill(int(folder.lock.read_text()), 9)
    assert run.wait(240).state == "FAILED"
    assert free_of_loops(embedded(client).home.root)
    assert str(folder.path) not in Path("/proc/self/mountinfo").read_text()


def test_a_disk_image_without_a_size_or_without_root_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = refused(resources={"disk_image": True})
    assert "resources.disk_image: the size of the disk is not specified" in text
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (text,) = refused(resources={"disk": "1GiB", "disk_image": True})
    assert "resources.disk_image: is not possible here: only root may mount one" in text
    assert "run muster as root" in text
    assert client.runs() == []


@images
def test_a_disk_that_is_too_small_is_refused(client: Client) -> None:
    (text,) = refused(resources={"disk": "1MiB", "disk_image": True})
    assert "1048576 bytes are too few for any program (at least 16MiB)" in text


def test_the_default_of_resources_disk_does_not_change_the_job_s_hash(client: Client) -> None:
    """Jobs stored before the field existed keep their hash."""
    from msgspec import to_builtins

    from muster.service.jobs import content_hash
    from muster.spec.models import JobSpec, Resources

    output = to_builtins(JobSpec(name="a", resources=Resources(memory=1 << 30)))
    before = {**output, "resources": {k: v for k, v in output["resources"].items() if k != "disk"}}
    assert content_hash("a", output, None) == content_hash("a", before, None)
    limited = to_builtins(JobSpec(name="a", resources=Resources(memory=1 << 30, disk=1 << 30)))
    assert content_hash("a", limited, None) != content_hash("a", output, None)
