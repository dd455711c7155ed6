"""The metadata file at OCI's place: in nodes alone, whatever the machine has there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from muster.engines.local import metadata
from muster.engines.local.isolation import impossible
from muster.plan.model import MountPlan

PLACE = "/home/datascience/job_run_cluster_metadata.json"

#: A machine whose /home is what the test says; nobody else sees it.
_MACHINE = """
    import json, os, sys
    from pathlib import Path
    from muster.engines.local import linux

    folder, user, read_only, files, *command = sys.argv[1:]
    outside = os.geteuid(), os.getegid()
    root = outside[0] == 0
    linux.unshare(linux.CLONE_NEWNS | (0 if root else linux.CLONE_NEWUSER))
    if not root:
        linux.map_user((0, 0), outside)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("tmpfs", "/home", "tmpfs", 0)
    for path, text in json.loads(files).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    if read_only == "ro":
        linux.bind(folder, folder)
        flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY
        linux.mount("none", "/", None, flags)
    before = sorted(map(str, Path("/home").rglob("*")))
    child = os.fork()
    if child == 0:
        if user == "user":
            before = os.geteuid(), os.getegid()
            linux.unshare(linux.CLONE_NEWUSER)
            linux.map_user((12345, 12345), before)
        os.execvp(command[0], command)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    after = sorted(map(str, Path("/home").rglob("*")))
    print("new on the machine:", *(path for path in after if path not in before))
    sys.exit(code)
"""

LOOK = f"""
import json, os, sys
print("variable:", os.environ["CLUSTER_NODES_METADATA_FILE"])
if os.path.exists("{PLACE}"):
    print("nodes:", *(node["FQDN"] for node in json.load(open("{PLACE}"))))
for folder in ("/home", "/home/datascience", *sys.argv[1:]):
    if os.path.isdir(folder):
        print(folder + ":", *sorted(os.listdir(folder)))
"""


def looked(
    folder: Path,
    *options: str,
    files: dict[str, str],
    user: bool = False,
    read_only: bool = False,
    program: str = LOOK,
    more: tuple[str, ...] = (),
) -> tuple[list[str], list[str]]:
    """What the first of two nodes says on such a machine, and what Muster says."""
    if impossible():
        pytest.skip("needs namespaces")
    muster = [sys.executable, "-m", "muster", "run", "--nodes", "2", *options, "--"]
    command = [*muster, sys.executable, "-c", program, *more]
    kind = ["user" if user else "root", "ro" if read_only else "rw", json.dumps(files)]
    argv = [sys.executable, "-c", textwrap.dedent(_MACHINE), str(folder), *kind, *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    said = [line.partition(" | ")[2] for line in lines if line.startswith("workers/0 | ")]
    notes = [line.removeprefix("note: ") for line in done.stderr.splitlines() if "note: " in line]
    return [*said, *(line for line in lines if " | " not in line)], notes


HERE = [
    f"variable: {PLACE}",
    "nodes: node-0 node-1",
    "/home: ann datascience",
    "/home/datascience: job_run_cluster_metadata.json",
]
UNCHANGED = "new on the machine:"
#: Waits until both nodes have joined, of which the file tells in its own time.
WAIT = f"""
import time
while open(__import__("os").environ["CLUSTER_NODES_METADATA_FILE"]).read().count("FQDN") < 2:
    time.sleep(0.001)
{LOOK}"""


@pytest.mark.shows("distributed-jobs/metadata-path")
@pytest.mark.parametrize("read_only", [False, True], ids=["", "read-only"])
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_at_its_place_and_nothing_on_the_machine(
    user: bool, read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said, notes = looked(
        tmp_path, files={"/home/ann/x": ""}, user=user, read_only=read_only, program=WAIT
    )
    assert said == [*HERE, UNCHANGED]
    assert not notes


def test_muster_s_own_home_may_be_beside_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSTER_HOME", "/home/ann/.muster")
    said, notes = looked(tmp_path, files={"/home/ann/x": ""}, program=WAIT)
    assert said[:-1] == HERE
    assert all(path.startswith("/home/ann/.muster") for path in said[-1].split()[4:])
    assert not notes


@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_mounts_below_it(tmp_path: Path, own_home: Path, user: bool) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.csv").touch()
    mount = ("--mount", f"{tmp_path}/data:/home/datascience/data")
    more = ("/home/datascience/data",)
    said, notes = looked(tmp_path, *mount, files={}, user=user, program=WAIT, more=more)
    assert said == [
        *HERE[:2],
        "/home: datascience",
        "/home/datascience: data job_run_cluster_metadata.json",
        "/home/datascience/data: table.csv",
        UNCHANGED,
    ]
    assert not notes


def test_a_folder_that_the_machine_has_is_left_alone(tmp_path: Path, own_home: Path) -> None:
    """What programs write there arrives there, and what they replace is replaced."""
    write = f"""
{WAIT}
if os.environ["NODE_RANK"] == "0":
    open("/home/datascience/new", "w").close()
    open("/home/datascience/.part", "w").close()
    os.replace("/home/datascience/.part", "/home/datascience/model")
"""
    said, notes = looked(tmp_path, files={"/home/datascience/model": "old"}, program=write)
    assert said[1:] == [
        "/home: datascience",
        "/home/datascience: model",
        f"{UNCHANGED} /home/datascience/new",
    ]
    assert said[0].startswith(f"variable: {own_home}/runs/")
    assert notes == [
        f"the metadata file is not at {PLACE}, only where CLUSTER_NODES_METADATA_FILE says: this "
        "machine has that folder"
    ]


def test_a_scratch_mount_there_has_it(tmp_path: Path, own_home: Path) -> None:
    """The way out for a machine that has the folder."""
    mount = ("--mount", "scratch:run/home:/home/datascience")
    said, notes = looked(tmp_path, *mount, files={"/home/datascience/x": ""}, program=WAIT)
    assert said == [HERE[0], HERE[1], "/home: datascience", HERE[3], UNCHANGED]
    assert not notes


def test_a_folder_mounted_there_is_left_alone(tmp_path: Path, own_home: Path) -> None:
    (tmp_path / "mine").mkdir()
    mount = ("--mount", f"{tmp_path}/mine:/home/datascience")
    said, (note,) = looked(tmp_path, *mount, files={}, program=WAIT)
    assert said[1:] == ["/home: datascience", "/home/datascience:", UNCHANGED]
    assert not os.listdir(tmp_path / "mine")
    assert note.endswith(f"says: {tmp_path}/mine is mounted at /home/datascience")


def test_plain_processes_are_told(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    monkeypatch.setattr(f"{__name__}.impossible", lambda: "")
    said, notes = looked(tmp_path, files={"/home/ann/x": ""}, program=WAIT)
    assert said[0].startswith(f"variable: {own_home}/runs/")
    assert said[1:] == ["/home: ann", UNCHANGED]
    assert notes[0].endswith("says: MUSTER_ISOLATION=plain")


def test_homes_that_are_mounted_on_demand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """To show them again would mount every one."""
    monkeypatch.setattr(metadata, "FOLDER", tmp_path / "homes" / "datascience")
    assert not metadata.obstacle([])
    (tmp_path / "homes").mkdir()
    for number in range(200):
        (tmp_path / "homes" / str(number)).mkdir()
    assert not metadata.obstacle([])
    (tmp_path / "homes" / "200").mkdir()
    assert metadata.obstacle([]) == f"there is too much in {tmp_path}/homes"
    monkeypatch.setattr(metadata, "FOLDER", tmp_path / "homes" / "1" / "datascience")
    listing = f"auto {tmp_path}/homes/1 autofs rw 0 0\nproc /proc proc rw 0 0\n"
    monkeypatch.setattr(metadata, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(listing)
    assert metadata.obstacle([]) == f"what is in {tmp_path}/homes/1 is mounted on demand"


@pytest.mark.parametrize(
    ("source", "kind", "path", "reason"),
    [
        ("/d", "directory", "/home", "/d is mounted at /home"),
        ("s3://b", "url", "/home/datascience", "s3://b is mounted at /home/datascience"),
        ("scratch:run/x", "scratch", "/home", ""),
        ("scratch:life/x", "scratch", "/home", "scratch:life/x is mounted at /home"),
        ("scratch:node/x", "scratch", PLACE, f"scratch:node/x is mounted at {PLACE}"),
        ("/d", "directory", "/home/datascience/below", ""),
        ("/d", "directory", "/home/datascienc", ""),
    ],
)
def test_mounts_in_the_way(
    source: str, kind: Any, path: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(metadata, "_cannot_be_remade", lambda parent: "")
    monkeypatch.setattr(os.path, "lexists", lambda path: False)  # whatever this machine has
    assert metadata.obstacle([MountPlan(source, kind, path, "V")]) == reason


def test_a_home_that_may_not_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # others may enter it, unlike pytest's
        home = Path(folder) / "home"
        home.mkdir(mode=0o000)
        Path(folder).chmod(0o755)
        monkeypatch.setattr(metadata, "FOLDER", home / "datascience")
        user = os.geteuid()
        os.seteuid(user or 65534)
        try:
            found = metadata.obstacle([])
        finally:
            os.seteuid(user)
    assert found == f"{home}: Permission denied"


def test_a_link_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "datascience").symlink_to("nowhere")
    monkeypatch.setattr(metadata, "FOLDER", tmp_path / "datascience")
    assert metadata.obstacle([]) == "this machine has that folder"
