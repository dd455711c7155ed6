"""The engine contract for mounts of files whose content is given, and of parts of mounts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.plan.model import FilePlan, MountPlan
from support.sessions import REAL_KINDS, Session

pytestmark = [pytest.mark.capability("mounts"), pytest.mark.capability("in_place")]

MakeSession = Callable[..., Session]
SECRET = "correct-horse-battery"
FILES = (
    FilePlan("app.conf", "rank ${rank} attempt ${attempt} of $${HOME}\n", 0o644),
    FilePlan("keys/pass", "${secret.db.PASS}", 0o400),
    FilePlan("keys/raw", "AAH/", 0o640, is_base64=True),
)
CONF = MountPlan("files:/mnt/conf", "files", "/mnt/conf", "MUSTER_MOUNT_CONF", True, files=FILES)
#: Only the length of the secret is printed.
SHOW = """
    cd $MUSTER_MOUNT_CONF
    cat app.conf; stat -c '%n %a' app.conf keys/*; wc -c < keys/pass; od -An -tx1 keys/raw
    exit $((1 - MUSTER_ATTEMPT))
"""


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest, prepare: Callable[[str], str]) -> str:
    return prepare(request.param)


def shown(rank: int, attempt: int) -> str:
    return (
        f"rank {rank} attempt {attempt} of ${{HOME}}\n"
        "app.conf 644\nkeys/pass 400\nkeys/raw 640\n"
        f"{len(SECRET)}\n 00 01 ff\n"
    )


def holding(folder: Path, text: str) -> list[str]:
    """The files below a folder that contain a text."""
    every = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return [path for path in every if os.path.isfile(path) and text in _read(path)]


def _read(path: str) -> str:
    return Path(path).read_bytes().decode(errors="replace")


def test_files_are_written_for_each_start_and_none_is_left(
    session: MakeSession, own_home: Path, tmp_path: Path
) -> None:
    one = session(SHOW, 2, keep=True, mounts=(CONF,), secrets={"db.PASS": SECRET})
    one.start(0, 1)
    ended = one.ended(0, 1)
    assert [ended[rank]["exit_code"] for rank in (0, 1)] == [1, 1]
    assert [one.output(rank) for rank in (0, 1)] == [shown(0, 0), shown(1, 0)]
    one.start(0, 1, incarnation=1, attempt=1)
    ended = one.ended(0, 1, incarnation=1)
    assert [ended[rank]["exit_code"] for rank in (0, 1)] == [0, 0]
    assert [one.output(rank, attempt=1) for rank in (0, 1)] == [shown(0, 1), shown(1, 1)]
    one.release(0, 1, incarnation=1)
    one.close()
    # the plan that this test gives to the process with the session is not sealed
    assert [path for path in holding(tmp_path, SECRET) if "/nodes/" in path] == []
    assert holding(own_home / "hosts", SECRET) == []


def test_one_file_and_a_folder_of_the_node_are_mounted_by_themselves(session: MakeSession) -> None:
    file = MountPlan(
        "files:/mnt/one.conf",
        "files",
        "/mnt/one.conf",
        "MUSTER_MOUNT_ONE_CONF",
        True,
        files=FILES,
        sub_path="app.conf",
    )
    folder = MountPlan(
        "scratch:incarnation/data",
        "scratch",
        "/mnt/data",
        "MUSTER_MOUNT_DATA",
        sub_path="${hostname}/part",
    )
    show = """
        cat $MUSTER_MOUNT_ONE_CONF; ls $MUSTER_MOUNT_DATA
        touch $MUSTER_MOUNT_DATA/attempt-$MUSTER_ATTEMPT; exit 1
    """
    one = session(show, keep=True, mounts=(file, folder), secrets={"db.PASS": SECRET})
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 1
    one.start(0, incarnation=1, attempt=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 1
    assert [one.output(0, attempt=n) for n in (0, 1)] == [
        "rank 0 attempt 0 of ${HOME}\n",
        "rank 0 attempt 1 of ${HOME}\n",  # and the folder is emptied
    ]


def test_a_part_that_leads_out_of_its_mount_is_refused(session: MakeSession) -> None:
    mount = MountPlan(
        "scratch:node/d", "scratch", "/mnt/d", "MUSTER_MOUNT_D", sub_path="${secret.up}"
    )
    one = session("true", mounts=(mount,), secrets={"up": "../x"})
    one.start(0)
    text = "'../x', the sub_path of /mnt/d, does not lead into the mount"
    assert text in one.ended(0)[0]["message"]
