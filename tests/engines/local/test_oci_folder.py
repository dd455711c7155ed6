"""The metadata file at OCI's path, which only nodes see."""

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

from muster.engines.local import node_folders
from muster.engines.local.namespaces import unavailable_reason
from muster.plan.model import MountPlan

PLACE = "/home/datascience/job_run_cluster_metadata.json"

#: A machine with a /home of the test, which other processes do not see.
_MACHINE = """
    import json, os, sys
    from pathlib import Path
    from muster.engines.local import namespaces

    folder, user, read_only, files, *command = sys.argv[1:]
    outside = os.geteuid(), os.getegid()
    root = outside[0] == 0
    namespaces.unshare(namespaces.CLONE_NEWNS | (0 if root else namespaces.CLONE_NEWUSER))
    if not root:
        namespaces.map_user((0, 0), outside)
    namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)
    namespaces.mount("tmpfs", "/home", "tmpfs", 0)
    for path, text in json.loads(files).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    if read_only == "ro":
        namespaces.bind(folder, folder)
        flags = namespaces.MS_REMOUNT | namespaces.MS_BIND | namespaces.MS_RDONLY
        namespaces.mount("none", "/", None, flags)
    before = sorted(map(str, Path("/home").rglob("*")))
    child = os.fork()
    if child == 0:
        if user == "user":
            before = os.geteuid(), os.getegid()
            namespaces.unshare(namespaces.CLONE_NEWUSER)
            namespaces.map_user((12345, 12345), before)
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


def run_on_machine(
    folder: Path,
    *options: str,
    files: dict[str, str],
    user: bool = False,
    read_only: bool = False,
    program: str = LOOK,
    more: tuple[str, ...] = (),
) -> tuple[list[str], list[str]]:
    """The output of the first of two nodes on such a machine, and Muster's notes."""
    if unavailable_reason():
        pytest.skip("needs namespaces")
    muster = [sys.executable, "-m", "muster", "run", "--nodes", "2", *options, "--"]
    command = [*muster, sys.executable, "-c", program, *more]
    kind = ["user" if user else "root", "ro" if read_only else "rw", json.dumps(files)]
    argv = [sys.executable, "-c", textwrap.dedent(_MACHINE), str(folder), *kind, *command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    output = [line.partition(" | ")[2] for line in lines if line.startswith("workers/0 | ")]
    notes = [line.removeprefix("note: ") for line in done.stderr.splitlines() if "note: " in line]
    return [*output, *(line for line in lines if " | " not in line)], notes


HERE = [
    f"variable: {PLACE}",
    "nodes: node-0 node-1",
    "/home: ann datascience",
    "/home/datascience: job_run_cluster_metadata.json",
]
UNCHANGED = "new on the machine:"
#: Waits until the file lists both nodes.
WAIT = f"""
import time
while open(__import__("os").environ["CLUSTER_NODES_METADATA_FILE"]).read().count("FQDN") < 2:
    time.sleep(0.001)
{LOOK}"""


@pytest.mark.shows("distributed-jobs/metadata-path")
@pytest.mark.parametrize("read_only", [False, True], ids=["", "read-only"])
@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_nodes_see_the_metadata_file_and_the_machine_does_not(
    user: bool, read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    output, notes = run_on_machine(
        tmp_path, files={"/home/ann/x": ""}, user=user, read_only=read_only, program=WAIT
    )
    assert output == [*HERE, UNCHANGED]
    assert not notes


def test_muster_home_may_be_in_the_same_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSTER_HOME", "/home/ann/.muster")
    output, notes = run_on_machine(tmp_path, files={"/home/ann/x": ""}, program=WAIT)
    assert output[:-1] == HERE
    assert all(path.startswith("/home/ann/.muster") for path in output[-1].split()[4:])
    assert not notes


@pytest.mark.parametrize("user", [False, True], ids=["root", "user"])
def test_mounts_below_the_oci_folder_are_visible(
    tmp_path: Path, own_home: Path, user: bool
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.csv").touch()
    mount = ("--mount", f"{tmp_path}/data:/home/datascience/data")
    more = ("/home/datascience/data",)
    output, notes = run_on_machine(tmp_path, *mount, files={}, user=user, program=WAIT, more=more)
    assert output == [
        *HERE[:2],
        "/home: datascience",
        "/home/datascience: data job_run_cluster_metadata.json",
        "/home/datascience/data: table.csv",
        UNCHANGED,
    ]
    assert not notes


def test_an_oci_folder_of_the_machine_is_not_overlaid(tmp_path: Path, own_home: Path) -> None:
    """Programs can create and replace files in it."""
    write = f"""
{WAIT}
if os.environ["NODE_RANK"] == "0":
    open("/home/datascience/new", "w").close()
    open("/home/datascience/.part", "w").close()
    os.replace("/home/datascience/.part", "/home/datascience/model")
"""
    output, notes = run_on_machine(
        tmp_path, files={"/home/datascience/model": "old"}, program=write
    )
    assert output[1:] == [
        "/home: datascience",
        "/home/datascience: model",
        f"{UNCHANGED} /home/datascience/new",
    ]
    assert output[0].startswith(f"variable: {own_home}/runs/")
    assert notes == [
        f"the metadata file is not at {PLACE}, only where CLUSTER_NODES_METADATA_FILE says: this "
        "machine has that folder"
    ]


def test_a_scratch_mount_at_the_oci_folder_has_the_metadata_file(
    tmp_path: Path, own_home: Path
) -> None:
    """The workaround for a machine that has the folder."""
    mount = ("--mount", "scratch:run/home:/home/datascience")
    output, notes = run_on_machine(
        tmp_path, *mount, files={"/home/datascience/x": ""}, program=WAIT
    )
    assert output == [HERE[0], HERE[1], "/home: datascience", HERE[3], UNCHANGED]
    assert not notes


def test_a_directory_mounted_at_the_oci_folder_is_not_changed(
    tmp_path: Path, own_home: Path
) -> None:
    (tmp_path / "mine").mkdir()
    mount = ("--mount", f"{tmp_path}/mine:/home/datascience")
    output, (note,) = run_on_machine(tmp_path, *mount, files={}, program=WAIT)
    assert output[1:] == ["/home: datascience", "/home/datascience:", UNCHANGED]
    assert not os.listdir(tmp_path / "mine")
    assert note.endswith(f"says: {tmp_path}/mine is mounted at /home/datascience")


def test_a_note_reports_the_missing_file_without_namespaces(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    monkeypatch.setattr(f"{__name__}.unavailable_reason", lambda: "")
    output, notes = run_on_machine(tmp_path, files={"/home/ann/x": ""}, program=WAIT)
    assert output[0].startswith(f"variable: {own_home}/runs/")
    assert output[1:] == ["/home: ann", UNCHANGED]
    assert notes[0].endswith("says: MUSTER_ISOLATION=plain")


def test_large_and_automounted_home_folders_are_not_overlaid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """To bind their entries again would mount each of them."""
    monkeypatch.setattr(node_folders, "OCI_FOLDER", tmp_path / "homes" / "datascience")
    assert not node_folders.metadata_obstacle([])
    (tmp_path / "homes").mkdir()
    for number in range(200):
        (tmp_path / "homes" / str(number)).mkdir()
    assert not node_folders.metadata_obstacle([])
    (tmp_path / "homes" / "200").mkdir()
    assert node_folders.metadata_obstacle([]) == f"{tmp_path}/homes has more than 200 entries"
    monkeypatch.setattr(node_folders, "OCI_FOLDER", tmp_path / "homes" / "1" / "datascience")
    listing = f"auto {tmp_path}/homes/1 autofs rw 0 0\nproc /proc proc rw 0 0\n"
    monkeypatch.setattr(node_folders, "_MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(listing)
    assert (
        node_folders.metadata_obstacle([]) == f"folders in {tmp_path}/homes/1 are mounted on demand"
    )


@pytest.mark.parametrize(
    ("source", "kind", "path", "reason"),
    [
        ("/d", "directory", "/home", "/d is mounted at /home"),
        ("s3://b", "url", "/home/datascience", "s3://b is mounted at /home/datascience"),
        ("scratch:run/x", "scratch", "/home", ""),
        ("scratch:incarnation/x", "scratch", "/home", "scratch:incarnation/x is mounted at /home"),
        ("scratch:node/x", "scratch", PLACE, f"scratch:node/x is mounted at {PLACE}"),
        ("/d", "directory", "/home/datascience/below", ""),
        ("/d", "directory", "/home/datascienc", ""),
    ],
)
def test_some_mounts_over_the_oci_folder_prevent_the_metadata_file(
    source: str, kind: Any, path: str, reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(node_folders, "_overlay_obstacle", lambda parent: "")
    # this machine may have the folder
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    assert node_folders.metadata_obstacle([MountPlan(source, kind, path, "V")]) == reason


def test_a_home_folder_without_permission_prevents_the_metadata_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # other users may enter this folder, unlike pytest's
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o000)
        Path(folder).chmod(0o755)
        monkeypatch.setattr(node_folders, "OCI_FOLDER", home / "datascience")
        user = os.geteuid()
        os.seteuid(user or 65534)
        try:
            found = node_folders.metadata_obstacle([])
        finally:
            os.seteuid(user)
    assert found == f"{home}: Permission denied"


def test_a_dangling_link_at_the_oci_folder_prevents_the_metadata_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "datascience").symlink_to("nowhere")
    monkeypatch.setattr(node_folders, "OCI_FOLDER", tmp_path / "datascience")
    assert node_folders.metadata_obstacle([]) == "this machine has that folder"
