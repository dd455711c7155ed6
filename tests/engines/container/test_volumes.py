"""What containers have at the paths of mounts: with a Podman of the tests' own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engines.container.conftest import MakeSession
from muster.engines.container import volumes
from muster.node.launch_message import GivenFile
from muster.plan.model import FilePlan, MountPlan
from support.podman_service import IMAGE, USERS_IMAGE

FILES = (
    FilePlan("app.conf", "attempt ${attempt}\n", 0o644),
    FilePlan("keys/pass", "${secret.db.PASS}", 0o400),
)
MOUNTS = (
    MountPlan("files:/etc/app", "files", "/etc/app", "MUSTER_MOUNT_APP", True, files=FILES),
    MountPlan(
        *("files:/opt/one.conf", "files", "/opt/one.conf", "MUSTER_MOUNT_ONE", True),
        files=FILES[:1],
        sub_path="app.conf",
    ),
    MountPlan("scratch:node/kept", "scratch", "/kept", "MUSTER_MOUNT_KEPT"),
    MountPlan("scratch:incarnation/tmp", "scratch", "/fresh", "MUSTER_MOUNT_FRESH"),
    MountPlan(
        *("scratch:incarnation/data", "scratch", "/srv/part", "MUSTER_MOUNT_PART"),
        sub_path="a/b",
    ),
)
SHOW = """
    cat /etc/app/app.conf /opt/one.conf; wc -c < /etc/app/keys/pass
    echo $MUSTER_MOUNT_APP $MUSTER_MOUNT_KEPT
    touch /etc/app/x 2>/dev/null && echo writable
    ls /fresh /kept /srv/part; stat -c %a /fresh
    touch /kept/kept-$MUSTER_ATTEMPT /fresh/$MUSTER_ATTEMPT /srv/part/$MUSTER_ATTEMPT
    exit 1
"""


@pytest.mark.parametrize("image", [IMAGE, pytest.param(USERS_IMAGE, marks=pytest.mark.slow)])
def test_given_files_and_scratch_folders_are_at_their_paths(run: MakeSession, image: str) -> None:
    one = run(SHOW, keep=True, mounts=MOUNTS, secrets={"db.PASS": "12345"}, image=image)
    for attempt in (0, 1):
        one.start(0, incarnation=attempt, attempt=attempt)
        assert one.ended(0, incarnation=attempt)[0]["exit_code"] == 1
        kept = "kept-0\n" if attempt else ""
        assert one.output(0, attempt=attempt) == (
            f"attempt {attempt}\n" * 2 + "5\n/etc/app /kept\n"
            f"/fresh:\n\n/kept:\n{kept}\n/srv/part:\n1777\n"
        )
        folder = volumes.files_folder(one.plan.run_id, 0)
        assert [path for path in _files(folder) if path.stat().st_size] == []
    one.release(0, incarnation=1)
    one.close()
    assert not volumes.memory_folder(one.plan.run_id).exists()


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_given_files_are_not_written_through_links(tmp_path: Path) -> None:
    root, victim = tmp_path / "0", tmp_path / "victim"
    (root / "VAR").mkdir(parents=True)
    victim.mkdir()
    (victim / "pass").write_text("old")
    file = GivenFile(str(root / "VAR/keys/pass"), "secret", 0o400)
    for _ in range(2):
        volumes.write_files(root, [file], None)
        written = root / "VAR/keys/pass"
        assert (written.read_text(), written.stat().st_mode & 0o777) == ("secret", 0o400)
    written.unlink()
    written.symlink_to(victim / "pass")
    with pytest.raises(OSError, match="pass"):
        volumes.write_files(root, [file], (0, 0))
    written.unlink()
    os.mkfifo(written)
    with pytest.raises(OSError, match="pass"):
        volumes.write_files(root, [file], None)
    written.unlink()
    written.parent.rmdir()
    (root / "VAR/keys").symlink_to(victim)
    with pytest.raises(OSError, match="keys"):
        volumes.write_files(root, [file], None)
    assert (victim / "pass").read_text() == "old"


def test_a_part_that_becomes_a_link_is_neither_made_nor_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, victim = tmp_path / "whole", tmp_path / "victim"
    whole.mkdir()
    victim.mkdir()
    (victim / "file").touch()
    part = f"{whole}/a/b"
    volumes._make_part(part, str(whole), is_file=False)
    Path(part, "x").touch()
    volumes.empty(part, str(whole), ())
    assert list(Path(part).iterdir()) == []
    # a container replaces it after it was looked at
    monkeypatch.setattr(volumes, "check_inside", lambda part, whole: part)
    Path(part).rmdir()
    Path(part).parent.rmdir()
    Path(part).parent.symlink_to(victim)
    with pytest.raises(OSError, match="a"):
        volumes._make_part(part, str(whole), is_file=False)
    with pytest.raises(OSError, match="a"):
        volumes.empty(f"{whole}/a", str(whole), ())
    assert [path.name for path in victim.iterdir()] == ["file"]
