"""Copies from and to the nodes of real runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster
from muster.api.node_paths import NodePath, parse_path
from muster.client.client import Client
from muster.client.run import JobRun
from muster.errors import InvalidInput, NotFound
from support.embedded import embedded
from support.runs import start_spec, until_ready

PROGRAM = """
mkdir d && echo "of $NODE_RANK" > d/file && ln -s file d/link && ln -s /etc d/etc
echo "private $NODE_RANK" > "$MUSTER_MOUNT_T/file" && echo model > "$MUSTER_OUTPUTS/model"
touch up; sleep 1000
"""


def copy(client: Client, source: str, target: str) -> tuple[str, ...]:
    """What was left out of a copy."""
    return client.api.node_access.copy(source, target, lambda _size: None)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("run:0:a", NodePath("run", 0, "a")),
        ("run:12:/a:b", NodePath("run", 12, "/a:b")),
        ("run:0:", NodePath("run", 0, "")),
        ("run:a", NodePath("run", None, "a")),
        ("run:a:b", NodePath("run", None, "a:b")),
        ("run:7", NodePath("run", None, "7")),
        ("run:", NodePath("run", None, "")),
        ("a", "a"),
        ("-", "-"),
        ("./a:b", "./a:b"),
        ("/a:0:b", "/a:0:b"),
        (":a", ":a"),
        ("", ""),
    ],
)
def test_what_is_a_path_on_a_node(text: str, place: NodePath | str) -> None:
    assert parse_path(text) == place
    if isinstance(place, NodePath):
        assert str(place) == text


@pytest.fixture(params=["namespaces", pytest.param("plain", marks=pytest.mark.slow)])
def run(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> JobRun:
    """A run of two nodes in progress, each with a folder of its own at /mnt/t."""
    if request.param == "plain":
        monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    monkeypatch.chdir(tmp_path)
    mount = {"source": "scratch:node/t", "path": "/mnt/t"}
    probe = {"exec": ["test", "-e", "up"], "period": 0.02, "threshold": 10_000}
    spec = {"command": ["sh", "-c", PROGRAM], "name": "demo", "nodes": 2}
    run = start_spec(client, {**spec, "mounts": [mount], "startup_probe": probe}, tmp_path)
    until_ready(run)
    return run


def test_copies_from_to_and_between_running_nodes(
    client: Client, run: JobRun, tmp_path: Path
) -> None:
    for source, target in (
        ("last:1:d", "copy"),
        ("demo-1:0:$MUSTER_MOUNT_T/file", "private"),  # each node has its own
        ("last:0:$MUSTER_OUTPUTS/model", "model"),
        ("copy/.", "last:0:d"),
        ("last:0:d/file", "last:1:$MUSTER_MOUNT_T/from 0"),
        ("last:1:$MUSTER_MOUNT_T/from 0", "back"),
    ):
        assert copy(client, source, target) == ()
    with pytest.MonkeyPatch.context() as patch:  # the node does not see Muster's Python
        patch.setattr(sys, "executable", "/missing/python")
        assert copy(client, "last:0:d/file", "by its own") == ()
    assert (tmp_path / "by its own").read_text() == "of 1\n"
    assert (tmp_path / "copy" / "file").read_text() == "of 1\n"
    assert (tmp_path / "copy" / "link").readlink() == Path("file")
    assert (tmp_path / "copy" / "etc").readlink() == Path("/etc")
    assert (tmp_path / "private").read_text() == "private 0\n"
    assert (tmp_path / "model").read_text() == "model\n"
    assert (tmp_path / "back").read_text() == "of 1\n", "replaced before it was copied"

    for source, target, message in (
        ("last:0:missing", ".", "^last:0:missing: No such file or directory$"),
        ("copy", "last:0:none/x", "last:0:none/x: .*/none: No such folder$"),
        ("missing", "last:0:.", "^missing: No such file or directory$"),
        ("last:0:d", "none/x", r"/none: No such folder$"),
        (
            "last:d",
            ".",
            r"^last:d: demo-1 has 2 nodes; name one \(write last:RANK:d; its nodes: 0 \(workers\)",
        ),
        (
            "last:7:d",
            ".",
            r"^last:7:d: demo-1 has no rank 7 \(its nodes: 0 \(workers\), 1 \(workers\)\)$",
        ),
        ("copy", "back", "neither copy nor back is on a node"),
    ):
        with pytest.raises(InvalidInput, match=message):
            copy(client, source, target)
    run.cancel()


def test_copies_from_to_and_between_nodes_on_other_machines(
    client: Client, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "mkdir d && echo of $NODE_RANK > d/file && ln -s file d/link; touch up; sleep 1000"
    probe = {"exec": ["test", "-e", "up"], "period": 0.02, "threshold": 10_000}
    spec = {"command": ["sh", "-c", program], "name": "demo", "nodes": 2, "engine": servers}
    until_ready(start_spec(client, {**spec, "startup_probe": probe}, tmp_path))
    content = os.urandom(5 << 20)
    (tmp_path / "large").write_bytes(content)
    monkeypatch.setattr(sys, "executable", "/missing/python")  # the host's is another one
    for source, target in (
        ("last:1:d", "copy"),
        ("copy/.", "last:0:d"),
        ("last:0:d/file", "last:1:from 0"),
        ("last:1:from 0", "back"),
        ("large", "last:0:d"),
        ("last:0:d/large", "last:1:d"),
        ("last:1:d/.", "."),
    ):
        assert copy(client, source, target) == ()
    assert (tmp_path / "copy" / "link").readlink() == Path("file")
    assert (tmp_path / "back").read_text() == "of 1\n"
    assert (tmp_path / "large").read_bytes() == content
    for source, target, message in (
        ("last:0:missing", ".", "^last:0:missing: No such file or directory$"),
        ("copy", "last:0:none/x", "last:0:none/x: .*/none: No such folder$"),
    ):
        with pytest.raises(InvalidInput, match=message):
            copy(client, source, target)


def test_what_an_ended_node_has_left(client: Client, run: JobRun, tmp_path: Path) -> None:
    run.cancel().wait(60)
    for source, target in (
        ("last:1:d", "copy"),
        ("last:0:d/link", "of link"),
        ("last:0:$MUSTER_OUTPUTS", "outputs"),
        ("last:0:$MUSTER_RUN_OUTPUTS/rank-0/model", "model"),
    ):
        assert copy(client, source, target) == ()
    assert (tmp_path / "copy" / "file").read_text() == "of 1\n"
    assert (tmp_path / "of link").read_text() == "of 0\n"
    assert (tmp_path / "outputs" / "model").read_text() == "model\n"
    assert (tmp_path / "model").read_text() == "model\n"
    for source, target, message in (
        ("last:0:missing", ".", "No such file or directory; node-0 of demo-1 is STOPPED"),
        ("last:0:/etc/hostname", ".", "only its outputs and its working directory are kept"),
        ("last:0:d/etc/hostname", ".", "only its outputs and its working directory are kept"),
        ("last:0:../../../lease", ".", "only its outputs and its working directory are kept"),
        ("copy", "last:0:x", "nothing can be copied to node-0 of demo-1: it is STOPPED"),
    ):
        with pytest.raises(InvalidInput, match=message):
            copy(client, source, target)


@pytest.mark.parametrize("folder", ["outputs", "outputs/rank-0", "nodes/0/work"])
def test_a_folder_that_a_program_replaced_by_a_link_is_not_read(
    client: Client, tmp_path: Path, folder: str
) -> None:
    run = start_spec(client, {"command": ["true"], "name": "demo"}, tmp_path).wait(60)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "file").write_text("secret")
    place = embedded(client).home.run_dir(run.id).path / folder
    if place.exists():
        place.rename(tmp_path / "moved")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "private")
    for source in ("file", "$MUSTER_OUTPUTS/file", "$MUSTER_RUN_OUTPUTS/file", f"{place}/file"):
        with pytest.raises(InvalidInput):
            copy(client, f"last:0:{source}", str(tmp_path / "got"))
    assert not (tmp_path / "got").exists()


def test_a_file_with_a_colon_is_suggested(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a:b").touch()
    with pytest.raises(NotFound, match=r"write \./a:b for the file on this machine"):
        copy(client, "a:b", "c")


CHANGES = """
import os, shutil
open("new", "w").write("new")
open("kept/text", "a").write(" and more")
os.remove("gone")
shutil.rmtree("replaced")
os.mkdir("replaced")
shutil.move("before", "deep/after")
shutil.rmtree("away")
os.mkdir("nested")
os.chdir("nested")
for _ in range(1050):  # deeper than functions may call each other
    os.mkdir("a")
    os.chdir("a")
open("end", "w").close()
"""


@pytest.fixture
def shallow(tmp_path: Path, own_home: Path) -> Iterator[None]:
    """However the test ends, nothing is left that `shutil.rmtree` cannot remove."""
    yield
    nested = ["find", tmp_path, own_home, "-depth", "-path", "*/nested/*", "-delete"]
    subprocess.run(nested, check=True)


@pytest.mark.slow
@pytest.mark.usefixtures("shallow")
def test_an_ended_node_has_the_unchanged_files_of_large_code(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    for name in ("kept", "replaced", "before", "away", "deep"):
        (code / name).mkdir(parents=True)
        (code / name / "text").write_text(name)
    (code / "gone").touch()
    (code / "data").write_bytes(bytes(20 << 20))
    (code / "link").symlink_to("kept/text")
    (code / "main.py").write_text(CHANGES)
    monkeypatch.chdir(tmp_path)
    run = muster.run(code, entrypoint="main.py", nodes=1).wait(60)
    assert run.state == "SUCCEEDED", run.logs()
    service = embedded(client)
    assert copy(client, "last:0:.", "all") == ()
    assert Path("all/nested", *["a"] * 1050, "end").exists()
    for root in (Path("all"), service.home.run_dir(run.id).path):
        subprocess.run(["find", root, "-depth", "-path", "*/nested*", "-delete"], check=True)
    found = {str(p.relative_to("all")) for p in Path("all").rglob("*") if not p.is_dir()}
    below = {"kept/text", "deep/text", "deep/after/text"}
    assert found == {"main.py", "data", "link", "new", *below}
    assert list(Path("all/replaced").iterdir()) == []
    assert Path("all/kept/text").read_text() == "kept and more"
    assert Path("all/deep/after/text").read_text() == "before"
    for place, text in (("link", "kept and more"), ("main.py", CHANGES), ("new", "new")):
        assert copy(client, f"last:0:{place}", "one") == ()
        assert Path("one").read_text() == text
    for place in ("gone", "replaced/text", "away", "before/text", "data/x"):
        with pytest.raises(InvalidInput, match=r"No such file|Not a directory"):
            copy(client, f"last:0:{place}", "one")
    opened = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    of_node = str(service.home.run_dir(run.id).path / "nodes")
    assert not [path for path in opened if path.startswith((of_node, str(service.home.artifacts)))]
    if not service.home.run_dir(run.id).overlay(0).exists():
        return  # the code was copied: nothing is missing without the stored code
    shutil.rmtree(service.home.artifacts)
    with pytest.raises(InvalidInput, match="code that the node did not change was deleted"):
        copy(client, "last:0:main.py", "one")
    assert copy(client, "last:0:.", "rest") == (
        ".: the code that the node did not change was deleted with its job",
    )
    assert Path("rest/new").read_text() == "new"


def test_a_replica_of_an_array_has_its_files_until_another_uses_them(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two slots have the working directories of the last replica that each has had."""
    monkeypatch.chdir(tmp_path)
    Path("main.py").write_text("import os; open('mine', 'w').write(os.environ['MUSTER_REPLICA'])")
    run = muster.run("main.py", array={"n": range(5)}, parallelism=2).wait(60)
    assert run.state == "SUCCEEDED", run.logs()
    kept = []
    for rank in range(5):
        try:
            copy(client, f"last:{rank}:mine", f"of {rank}")
        except InvalidInput as refused:
            assert "has been reused by another replica; only its outputs are kept" in str(refused)
        else:
            assert Path(f"of {rank}").read_text() == str(rank)
            kept.append(rank)
    assert len(kept) == 2
