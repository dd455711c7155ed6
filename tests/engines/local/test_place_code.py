"""The code in nodes' working directories: shared, and never changed by a node."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.client.run import JobRun
from muster.engines.base import RunContext
from muster.engines.local import namespaces
from muster.engines.local.place_code import prepare_code
from muster.plan.model import RunPlan
from muster.storage.home import Home
from support.disks import on_a_disk
from support.embedded import embedded

#: Every way to change a file in place, and to replace, remove and rename what is in the code. The
#: sum at the end is of what the node must see: its own changes.
CHANGES = """
import hashlib, mmap, os, shutil, sys
rank = os.environ["NODE_RANK"]
assert open("same-1", "rb").read() == open("same-2", "rb").read()
assert not os.path.samefile("same-1", "same-2")
with open("data", "r+b") as file:
    file.write(rank.encode())
    file.flush()
    with mmap.mmap(file.fileno(), 0) as mapped:
        mapped[1:2] = rank.encode()
with open("lib/text", "a") as file:
    file.write(rank)
os.truncate("short", 3)
os.chmod("mode", 0o600)
os.remove("gone")
shutil.rmtree("lib2")
os.makedirs("lib2")
open("lib2/new", "w").close()
shutil.move("lib3", "lib4")
assert os.listdir("lib2") == ["new"] and os.listdir("lib4") == ["text"]
start = open("data", "rb").read(2).decode()
print(start, open("lib/text").read(), os.path.getsize("short"), os.path.exists("gone"))
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    for name in ("lib", "lib2", "lib3"):
        (folder / name).mkdir(parents=True)
        (folder / name / "text").write_text("text")
    (folder / "data").write_bytes(os.urandom(20 << 20))
    for name in ("short", "mode", "gone", "same-1", "same-2"):
        (folder / name).write_text("content")
    (folder / "main.py").write_text(CHANGES)
    return folder


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes()) for path in files
    }


def blocks(folder: Path) -> int:
    found = {(s.st_dev, s.st_ino): s.st_blocks for s in map(os.lstat, folder.rglob("*"))}
    return sum(found.values()) * 512


def run_twice(client: Client, code: Path) -> JobRun:
    """Two runs on two nodes each; the second one must find the code as it was."""
    before = content(code)
    for _ in range(2):
        run = muster.run(code, entrypoint="main.py", nodes=2).wait(240)
        assert run.state == "SUCCEEDED", (run.details, run.logs())
        lines = sorted(record.message for record in run.logs(streams=["stdout"]))
        assert lines == ["00 text0 3 False", "11 text1 3 False"]
        (stored,) = embedded(client).home.artifacts.glob("??/*/code")
        assert content(stored) == before
    return run


def test_no_node_sees_what_another_writes_and_the_stored_code_stays(
    client: Client, code: Path
) -> None:
    run = run_twice(client, code)
    embedded(client).delete(run.id)
    assert not embedded(client).home.run_dir(run.id).path.exists()


def test_plain_processes_get_copies(
    client: Client, code: Path, monkeypatch: pytest.MonkeyPatch, own_launcher: None
) -> None:
    monkeypatch.setenv("MUSTER_ISOLATION", "plain")
    run_twice(client, code)


@pytest.mark.skipif(bool(namespaces.probe()), reason="needs namespaces")
def test_nodes_of_large_code_take_little_more_disk(client: Client, code: Path) -> None:
    (code / "main.py").write_text("import os; open('mine', 'w').write('x' * 1000)\n")
    run = muster.run(code, entrypoint="main.py", nodes=2).wait(240)
    assert run.state == "SUCCEEDED", run.details
    folder = embedded(client).home.run_dir(run.id)
    assert blocks(folder.path) < 1 << 20
    assert blocks(embedded(client).home.artifacts) < 21 << 20
    assert (folder.work(1) / "code" / "mine").exists()  # what a node writes stays with the run


#: Python may be in a folder of root's, which is shown to everybody here, read-only.
AS_USER = """
cp -r $CODE $DISK/code && chown -R 54321:54321 $DISK
case $BASE in /root/*)
  mkdir $DISK/python && mount --bind $BASE $DISK/python || exit 77
  mount -o bind,remount,ro $DISK/python && mount -t tmpfs -o mode=755 none /root || exit 77
  mkdir -p $BASE && mount --bind $DISK/python $BASE && umount $DISK/python || exit 77;;
esac
user() { setpriv --reuid 54321 --regid 54321 --clear-groups "$PYTHON" -m muster "$@"; }
for turn in 1 2; do
  user run $DISK/code --entrypoint main.py --nodes 2 2>$DISK/errors | sort || cat $DISK/errors
  diff -r $CODE $DISK/home/artifacts/??/*/code
done
ls $DISK/home/runs/*/nodes/1/work/code/same-1 2>/dev/null | wc -l
user runs delete last
ls $DISK/home/runs | wc -l
"""


@pytest.mark.parametrize("isolation", ["namespaces", "plain"])
def test_a_plain_user_gets_the_same(
    code: Path, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CODE": str(code), "BASE": sys.base_prefix, "HOME": "/"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MUSTER_ISOLATION", isolation)
    with tempfile.TemporaryDirectory() as disk:  # the folders of pytest are private
        os.chmod(disk, 0o755)
        lines = on_a_disk(Path(disk), "size=300m", AS_USER)
    output = ["workers/0 | 00 text0 3 False", "workers/1 | 11 text1 3 False"]
    deleted = "code-2 is deleted"
    copies = "2" if isolation == "plain" else "0"
    assert lines == [*output, *output, copies, deleted, "1"]


REFLINKS = """
truncate -s 400M $DISK/image
mkfs.xfs -q $DISK/image
mkdir $DISK/xfs; mount -o loop $DISK/image $DISK/xfs || exit 77
export MUSTER_HOME=$DISK/xfs/home
mkdir $DISK/xfs/code; cd $DISK/xfs/code
head -c 60000000 /dev/urandom > data
echo "open('data', 'r+b').write(b'mine')" > main.py
used() { sync -f $DISK/xfs; df --output=used -B1M $DISK/xfs | tail -1; }
before=$(used)
muster run $DISK/xfs/code --entrypoint main.py --nodes 2 2>/dev/null
echo $(($(used) - before)) MB
muster disk --json | tr -d ' ,' | grep -E '"(size|prunable)"' | head -3
cd $MUSTER_HOME/runs/*/nodes/1/work/code; ls; head -c 4 data
cmp -s $DISK/xfs/code/data $MUSTER_HOME/artifacts/??/*/code/data && echo unchanged
cd /; umount $DISK/xfs
"""


@pytest.mark.skipif(shutil.which("mkfs.xfs") is None, reason="mkfs.xfs is not installed")
def test_reflinks_share_the_blocks_of_the_users_files_with_store_and_nodes(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size, *shown, data, main, rest = on_a_disk(disk, "size=500m", REFLINKS)
    code, prunable, runs = (int(line.partition(":")[2]) for line in shown)
    assert 60_000_000 <= code < 61_000_000 and not prunable
    assert runs < 1_000_000, "their blocks are those of the code"
    assert int(size.removesuffix(" MB")) < 10
    assert (data, main, rest) == ("data", "main.py", "mineunchanged")


RETRIED = """
import os, sys
left = os.listdir(".")
first = os.environ["MUSTER_RESTART"] == "0"
assert ("mine" in left) is not first, left
open("mine", "w").close()
open(os.environ["TMPDIR"] + "/mine", "a").write("x")
assert os.path.getsize(os.environ["TMPDIR"] + "/mine") == (1 if first else 2)
sys.exit(first)
"""


@pytest.mark.skipif(bool(namespaces.probe()), reason="needs namespaces")
def test_a_retried_replica_finds_its_files_in_large_code(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of the replica before it."""
    monkeypatch.chdir(tmp_path)
    code = tmp_path / "code"
    code.mkdir()
    (code / "data").write_bytes(bytes(20 << 20))
    (code / "main.py").write_text(RETRIED)
    run = muster.run(
        code,
        entrypoint="main.py",
        array={"n": range(4)},
        parallelism=1,
        retries=1,
        failure={"backoff": {"initial": 0}},
    ).wait(240)
    assert run.state == "SUCCEEDED", [record.message for record in run.logs()]
    assert embedded(client).home.run_dir(run.id).overlay(0).is_dir(), "the code is a layer"


def test_references_in_commands_are_not_replaced(plan_of: Callable[..., RunPlan]) -> None:
    plan = plan_of(command=["echo", "${rank}"], args=["${rank}"])
    context = RunContext(plan, Home(Path("/home")), {}, "/py/python")
    command = prepare_code(context, plan.groups[0], Path(), mountable=False)
    assert command == ["echo", "${rank}", "${rank}"]
