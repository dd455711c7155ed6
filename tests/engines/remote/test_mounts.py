"""Directories that jobs mount, on machines that have them and on others."""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.control import run_lock
from muster.engines.base import RunContext
from muster.engines.loop import EventLoop, RunLoop
from muster.engines.remote import mount_copies
from muster.engines.remote.code import write_archive
from muster.engines.remote.collection import Unpacker
from muster.engines.remote.mount_copies import LIMIT, Given, pack, take_back
from muster.engines.remote.mounts import NodeMounts, RemoteMounts
from muster.engines.remote.plan_checks import notes, problems
from muster.node.folder_access import Listing, Walk
from muster.node.messages import FoldersFound
from muster.plan.model import MountPlan, RunPlan
from muster.spec.kinds import classify_source
from muster.storage.home import Home
from support.command import json_of, muster
from support.faults import until
from support.node_servers import kill as kill_process
from support.remote_engine import Machine, have_empty
from support.sessions import Session

MakeSession = Callable[..., Session]
PlanOf = Callable[..., RunPlan]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory of the submitter."""
    folder = tmp_path / "mine" / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "given").write_text("given\n")
    (folder / "sub" / "tool").write_text("#!/bin/sh\necho tool\n")
    (folder / "sub" / "tool").chmod(0o755)
    (folder / "link").symlink_to("sub/tool")
    return folder


@pytest.fixture
def only_here(data: Path, own_home: Path) -> Path:
    """A directory that the machines do not have."""
    have_empty(own_home, data.parent)
    return data


def mount(source: object, name: str = "data", **more: object) -> MountPlan:
    kind, variable = classify_source(str(source)), f"MUSTER_MOUNT_{name.upper()}"
    return MountPlan(str(source), kind, f"/mnt/{name}", variable, **more)  # type: ignore[arg-type]


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


# --- directories


def test_a_directory_that_the_machine_has_is_used_there(session: MakeSession, data: Path) -> None:
    one = session(
        "echo $MUSTER_MOUNT_DATA $MINE; echo new > $MINE; until [ -e $MINE.seen ]; do sleep 0.01; "
        "done",
        mounts=(mount(data),),
        env={"MINE": "/mnt/data/sub/new"},
    )
    one.start(0)
    until((data / "sub" / "new").exists, "the program's file")
    (data / "sub" / "new.seen").touch()
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    assert one.output() == f"{data} {data}/sub/new\n"


def test_a_directory_that_the_machine_has_not_is_copied_there_and_back(
    session: MakeSession, only_here: Path
) -> None:
    one = session(
        "set -e; cd $MUSTER_MOUNT_DATA; pwd; ./link; echo new > $MINE; echo more >> given; "
        "rm sub/tool; mkdir empty",
        mounts=(mount(only_here),),
        env={"MINE": "/mnt/data/sub/new"},
    )
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0, one.output(stream="err")
    assert one.output() == f"{one.folder}/hosts/0/node/mnt/0/data\ntool\n"
    assert files_in(only_here) == {
        "given": "given\nmore\n",
        "sub/new": "new\n",
        "sub/tool": "#!/bin/sh\necho tool\n",
    }, "nothing is deleted"
    assert (only_here / "empty").is_dir()
    assert stat.S_IMODE((only_here / "sub" / "tool").stat().st_mode) == 0o755
    assert one.close() == 0
    assert not (one.folder / "sent").exists()


def test_only_what_has_changed_comes_back(session: MakeSession, only_here: Path) -> None:
    one = session("read line; echo own > $MUSTER_MOUNT_DATA/own", mounts=(mount(only_here),))
    before = (only_here / "sub" / "tool").stat()
    one.start(0)
    one.ended(0)
    (only_here / "given").write_text("of the submitter\n")
    one.start(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0
    assert (only_here / "given").read_text() == "of the submitter\n"
    assert (only_here / "sub" / "tool").stat().st_ctime_ns == before.st_ctime_ns


def test_a_restart_in_place_goes_on_with_the_copy(session: MakeSession, only_here: Path) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA; ls; echo $MUSTER_RESTART >> own; rm -f given; touch ../beside; "
        "[ $MUSTER_RESTART = 2 ]",
        keep=True,
        mounts=(mount(only_here),),
    )
    for incarnation in range(3):
        one.start(0, incarnation=incarnation)
        one.ended(0, incarnation=incarnation)
        numbers = "".join(f"{number}\n" for number in range(incarnation + 1))
        assert (only_here / "own").read_text() == numbers
        (only_here / "of_submitter").touch()
    assert one.close() == 0
    assert one.output().split() == ["given", "link", "sub"] + ["link", "own", "sub"] * 2


def test_a_new_node_finds_what_others_have_brought_back(
    session: MakeSession, only_here: Path
) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA; ls of-*; touch of-$RANK-$MUSTER_RESTART",
        nodes=2,
        mounts=(mount(only_here),),
    )
    for incarnation in range(2):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
    assert one.close() == 0
    for rank in range(2):
        assert one.output(rank).split() == ["of-0-0", "of-1-0"]
    assert {path.name for path in only_here.glob("of-*")} == {
        f"of-{rank}-{restart}" for rank in range(2) for restart in range(2)
    }


def test_what_is_sent_again_is_what_has_changed(session: MakeSession, only_here: Path) -> None:
    """Archives that no node has any more are removed, here and there."""
    one = session("[ ! -e $MUSTER_MOUNT_DATA/again ]", mounts=(mount(only_here),))
    archives = []
    for incarnation in range(3):
        if incarnation == 2:
            (only_here / "again").touch()
        one.start(0, incarnation=incarnation)
        code = one.ended(0, incarnation=incarnation)[0]["exit_code"]
        assert code == (incarnation == 2)
        here = {path.name for path in (one.folder / "sent").iterdir()}
        there = {path.name for path in Machine.at(one.home / "host").archives.iterdir()}
        assert here == {"0.json", *there, *(f"{name}.json" for name in there)}
        archives += there
    assert archives[0] == archives[1] != archives[2]
    assert one.close() == 0


def test_an_archive_that_was_packed_just_now_is_not_removed(
    only_here: Path, tmp_path: Path, plan_of: PlanOf
) -> None:
    """By the launch of a node that has another directory, before it is known that it is packed."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    groups = [
        {"name": "a", "command": "true", "mounts": [{"source": str(only_here), "path": "/mnt/a"}]},
        {"name": "b", "command": "true", "mounts": [{"source": str(other), "path": "/mnt/b"}]},
    ]
    plan = plan_of(node_groups=groups)
    home = Home(tmp_path / "home")
    home.run_dir(plan.run_id).path.mkdir(parents=True)
    loop = EventLoop()
    errors: list[Exception] = []
    run = RunLoop(loop, errors.append)
    context = RunContext(plan, home, {}, sys.executable)
    made = RemoteMounts(context, run, Unpacker(run), lambda: None)

    def until_packed(rank: int) -> None:
        while not made.ask(rank):
            loop.run_once()

    for rank in range(2):
        made.answered(rank, FoldersFound([]))
    until_packed(0)
    made.launch(0, "/f", plan.groups[0].mounts)
    (only_here / "given").write_text("changed")
    made.starting()
    until_packed(0)
    assert not made.ask(1)
    folder = home.run_dir(plan.run_id).sent
    until(lambda: len([*folder.glob("*.json")]) == 4, "b is packed")
    made.launch(0, "/f", plan.groups[0].mounts)  # nobody has the former archive of a any more
    until_packed(1)
    (packed,) = made.launch(1, "/f", plan.groups[1].mounts).packed.values()
    assert made.archive(packed.sha256) is not None
    assert errors == []
    loop.close()


def test_a_directory_that_is_empty(session: MakeSession, only_here: Path) -> None:
    empty = only_here.parent / "empty"
    empty.mkdir()
    one = session(
        "ls -A $MUSTER_MOUNT_DATA; echo new > $MUSTER_MOUNT_DATA/new", mounts=(mount(empty),)
    )
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    assert one.output() == ""
    assert files_in(empty) == {"new": "new\n"}


def test_nothing_comes_back_from_a_read_only_mount(session: MakeSession, only_here: Path) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA && cat given && echo x > given && echo x > new",
        mounts=(mount(only_here, read_only=True),),
    )
    before = files_in(only_here)
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    assert one.output() == "given\n"
    assert files_in(only_here) == before


def test_a_file_that_has_changed_in_both_places_is_that_of_the_node(
    session: MakeSession, only_here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA; echo began; echo mine > given; echo mine > new; echo mine > own; "
        "until [ -e {flag} ]; do sleep 0.01; done".replace(
            "{flag}", f"{only_here.parents[1]}/flag"
        ),
        mounts=(mount(only_here),),
    )
    one.start(0)
    one.wait_for_output("began")
    for name in ("given", "new"):
        (only_here / name).write_text("of the submitter\n")
    (only_here.parents[1] / "flag").touch()
    one.ended(0)
    assert one.close() == 0
    assert {(only_here / name).read_text() for name in ("given", "new", "own")} == {"mine\n"}
    lines = [line for line in capfd.readouterr().err.splitlines() if "changed" in line]
    assert lines == [
        f"muster: {only_here}/{name} has changed here, too; now it is that of node 0"
        for name in ("given", "new")
    ]


def test_a_directory_that_is_too_large_is_refused(session: MakeSession, only_here: Path) -> None:
    with (only_here / "large").open("wb") as file:
        file.truncate(LIMIT + 1)
    one = session("true", mounts=(mount(only_here),))
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (None, "not_started")
    assert ended["message"] == (
        f"{only_here} cannot be copied to a host: it has more than 1GiB, and its node's machine "
        "does not have it: put it on a file system that the machines share, or on each of them at "
        "this path, or have the program read it from a URL"
    )
    (only_here / "large").unlink()
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0
    assert one.close() == 0


def test_a_full_disk_there(session: MakeSession, only_here: Path) -> None:
    (only_here / "large").write_bytes(os.urandom(8 << 20))
    one = session("true", mounts=(mount(only_here),))
    have_empty(one.home, one.folder / "hosts", "size=6m")
    one.start(0)
    ended = one.ended(0)[0]
    assert ended["reason"] == "not_started"
    assert ended["message"].startswith(
        f"the mounted directory {one.folder}/hosts/0/node/mnt/0/data: "
    )
    assert ended["message"].endswith("No space left on device")
    assert one.close() == 0


def test_what_cannot_be_kept_here_fails_the_node_and_is_sent_again(
    session: MakeSession, only_here: Path
) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA; echo began; mkdir -p way; echo x > way/own; "
        "until [ -e {flag} ]; do sleep 0.01; done".replace(
            "{flag}", f"{only_here.parents[1]}/flag"
        ),
        keep=True,
        mounts=(mount(only_here),),
    )
    one.start(0)
    one.wait_for_output("began")
    (only_here / "way").write_text("in the way")
    (only_here.parents[1] / "flag").touch()
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (1, "output_lost")
    assert re.match(r"its outputs could not be copied from \S+ on its host: ", ended["message"])
    (only_here / "way").unlink()
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0
    assert one.close() == 0
    assert (only_here / "way" / "own").read_text() == "x\n"


def test_another_supervisor_brings_files_back(
    prepare: Callable[[str], str], own_home: Path, only_here: Path, tmp_path: Path
) -> None:
    prepare("servers")
    script = "cd $MUSTER_MOUNT_DATA; echo mine > given; until [ -e $FLAG ]; do sleep 0.01; done"
    flag = tmp_path / "flag"
    muster(
        *("run", "--engine", "servers", "-d", "--mount", str(only_here), "--env", f"FLAG={flag}"),
        *("--", "sh", "-c", script),
    )
    run = json_of("runs", "show", "last", "--json")
    folder = own_home / "runs" / run["id"]
    until(lambda: json_of("status", "last", "--json")["state"] == "IN_PROGRESS", "it runs")
    pid = run_lock.last_holder(folder / "lease")
    assert pid is not None
    kill_process(pid)
    (only_here / "given").write_text("of the submitter\n")
    muster("status", "last", code=0)  # starts another one
    flag.touch()
    muster("wait", "last", code=0)
    assert (only_here / "given").read_text() == "mine\n"
    log = (folder / "supervisor.log").read_text()
    assert f"{only_here}/given has changed here, too; now it is that of node 0" in log


# --- URLs


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """What is at a URL."""
    folder = tmp_path / "bucket"
    (folder / "sub").mkdir(parents=True)
    (folder / "given").write_text("given\n")
    (folder / "sub" / "tool").write_text("tool\n")
    return folder


def test_a_url_is_copied_to_each_node_and_what_changes_back(
    session: MakeSession, bucket: Path
) -> None:
    one = session(
        "cd $MUSTER_MOUNT_DATA; cat given sub/tool; ls; touch of-$RANK; rm given",
        nodes=2,
        mounts=(mount(f"file://{bucket}"),),
    )
    untouched = (bucket / "sub" / "tool").stat()
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0, one.output(stream="err")
    assert (bucket / "of-0").exists(), "before the end was reported"
    assert (bucket / "given").exists(), "nothing is deleted"
    one.start(1)
    assert one.ended(1)[1]["exit_code"] == 0
    assert one.close() == 0
    assert one.output() == "given\ntool\ngiven\nsub\n"
    assert one.output(1) == "given\ntool\ngiven\nof-0\nsub\n"
    assert sorted(path.name for path in bucket.iterdir()) == ["given", "of-0", "of-1", "sub"]
    now = (bucket / "sub" / "tool").stat()
    assert (now.st_ino, now.st_mtime_ns) == (untouched.st_ino, untouched.st_mtime_ns)


def test_a_url_that_is_only_read_does_not_change(session: MakeSession, bucket: Path) -> None:
    one = session(
        "touch $MUSTER_MOUNT_DATA/new", mounts=(mount(f"file://{bucket}", read_only=True),)
    )
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0
    assert one.close() == 0
    assert files_in(bucket) == {"given": "given\n", "sub/tool": "tool\n"}


def test_a_link_leads_to_the_file_that_a_url_names(session: MakeSession, bucket: Path) -> None:
    made = mount(f"file://{bucket}/given", read_only=True, link="in/data.txt")
    one = session("cat in/data.txt; ls $MUSTER_MOUNT_DATA", mounts=(made,))
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0, one.output(stream="err")
    assert one.close() == 0
    assert one.output() == "given\ngiven\n"


def test_a_url_with_nothing_to_read_fails_its_node(session: MakeSession, bucket: Path) -> None:
    url = f"file://{bucket}/missing"
    one = session("true", mounts=(mount(url, read_only=True),))
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["reason"], ended["message"]) == (
        "not_started",
        f"{url} cannot be copied to a host: no files found",
    )
    (bucket / "missing").mkdir()
    (bucket / "missing" / "here").touch()
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0, "it is tried again"
    assert one.close() == 0


def test_a_url_that_is_too_large_is_not_fetched(session: MakeSession, bucket: Path) -> None:
    with (bucket / "large").open("wb") as file:
        file.truncate(LIMIT + 1)
    one = session("true", mounts=(mount(f"file://{bucket}"),))
    one.start(0)
    assert one.ended(0)[0]["message"] == (
        f"file://{bucket} cannot be copied to a host: it has 1GiB, and at most 1GiB are copied"
    )
    assert not list((one.folder / "mounts").rglob("*/given"))
    assert one.close() == 0


def test_a_url_that_cannot_be_written_fails_the_node(session: MakeSession, bucket: Path) -> None:
    flag, url = bucket.parent / "flag", f"file://{bucket}"
    one = session(
        f"cd $MUSTER_MOUNT_DATA; echo began; mkdir -p way; echo $MUSTER_RESTART > way/own; "
        f"until [ -e {flag} ]; do sleep 0.01; done",
        keep=True,
        mounts=(mount(url),),
    )
    one.start(0)
    one.wait_for_output("began")
    (bucket / "way").write_text("in the way")
    flag.touch()
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (1, "output_lost")
    why = f" on its host: {url}: it cannot be written: FileExistsError"
    assert why in ended["message"]
    (bucket / "way").unlink()
    one.start(0, incarnation=1)
    assert one.ended(0, incarnation=1)[0]["exit_code"] == 0
    assert (bucket / "way" / "own").read_text() == "1\n"
    assert one.close() == 0


def test_a_node_that_is_killed_does_not_wait_for_its_url(
    session: MakeSession, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = bucket.parent / "waits"
    (bucket.parent / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if 'muster.storage.sync' in sys.orig_argv and 'out' in sys.orig_argv:\n"
        f"    open({str(waits)!r}, 'w').close()\n"
        "    time.sleep(600)\n"
    )
    path = os.pathsep.join([str(bucket.parent), os.environ["PYTHONPATH"]])
    monkeypatch.setenv("PYTHONPATH", path)
    one = session("touch $MUSTER_MOUNT_DATA/new", mounts=(mount(f"file://{bucket}"),))
    one.start(0)
    until(waits.exists, "it is copied to the URL")
    one.kill(0)
    ended = one.ended(0)[0]
    assert ended["message"].endswith("it cannot be written: it was canceled")
    assert one.close() == 0
    assert not (bucket / "new").exists()


# --- NFS exports


def test_an_export_is_used_where_the_machine_has_mounted_it(
    session: MakeSession, tmp_path: Path, own_home: Path
) -> None:
    place = tmp_path / "my files"
    (place / "data").mkdir(parents=True)
    made = Machine.at(own_home / "host")
    (table := tmp_path / "mounts").write_text(
        f"nas:/export {str(place).replace(' ', chr(92) + '040')} nfs4 rw,relatime,vers=4.2 0 0\n"
    )
    module = made.program / "muster" / "node" / "nfs.py"
    module.write_text(module.read_text().replace("/proc/self/mounts", str(table)))
    one = session('touch "$MUSTER_MOUNT_DATA/new"', mounts=(mount("nfs://nas/export/data"),))
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0, one.output(stream="err")
    assert (place / "data" / "new").exists()
    assert one.close() == 0


def test_an_export_that_the_machine_has_not_mounted(session: MakeSession) -> None:
    one = session("true", mounts=(mount("nfs://nas/export"),))
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["reason"], ended["message"]) == (
        "not_started",
        "its machine has not mounted nas:/export: have it mounted there, at any path, or "
        "mount a directory or a URL instead",
    )
    assert one.close() == 0


# --- what comes back, without a node


def archive_of(*members: tuple[str, bytes]) -> io.BytesIO:
    """As a hostile host sends it. A content that starts with "->" is a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        top = tarfile.TarInfo(".")
        top.type = tarfile.DIRTYPE
        archive.addfile(top)
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content.startswith(b"->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:].decode()
                archive.addfile(member)
            else:
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


@pytest.mark.parametrize(
    "members",
    [
        [("../out", b"x")],
        [("a/../../out", b"x")],
        [("{outside}/out", b"x")],
        [("way", b"->{outside}"), ("way/out", b"x")],
        [("way", b"->.."), ("way/out", b"x")],
    ],
)
def test_names_that_lead_outside_are_refused(
    data: Path, tmp_path: Path, members: list[tuple[str, bytes]]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    filled = [
        (name.format(outside=outside), content.replace(b"{outside}", bytes(outside)))
        for name, content in members
    ]
    with pytest.raises(OSError, match=r"outside the copy|is a link there"):
        take_back(archive_of(*filled), str(data), Given("", {}, {}), 0)
    assert not (outside / "out").exists()
    assert not (data.parent / "out").exists()


def test_a_fifo_in_the_way_blocks_nothing(data: Path) -> None:
    os.mkfifo(data / "way")
    with pytest.raises(OSError, match="Is neither a file nor a link here"):
        take_back(archive_of(("way", b"x")), str(data), Given("", {}, {}), 0)


def test_what_came_back_before_a_failure_is_remembered(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Given("", {}, {})
    with pytest.raises(OSError, match="Not a directory"):
        take_back(archive_of(("first", b"x"), ("given/in", b"x")), str(data), given, 0)
    (data / "given").unlink()
    take_back(archive_of(("first", b"y")), str(data), given, 0)
    assert capsys.readouterr().err == ""


# --- archives


@pytest.fixture
def sent(tmp_path: Path) -> Path:
    return tmp_path / "sent"


def test_a_directory_that_has_not_changed_is_not_packed_again(
    data: Path, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pack(str(data), sent)
    assert sorted(path.name for path in sent.iterdir()) == [first.sha256, f"{first.sha256}.json"]
    with monkeypatch.context() as patched:
        patched.setattr(mount_copies, "write_archive", pytest.fail)
        assert pack(str(data), sent, first) == first
    (data / "given").write_text("given!")
    assert pack(str(data), sent, first).sha256 != first.sha256


def test_what_is_no_file_is_left_out(
    data: Path, sent: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(data / "sub" / "pipe")
    packed = pack(str(data), sent)
    assert "sub/pipe" not in packed.versions
    text = f"muster: {data}/sub/pipe is not copied to hosts: it is not a regular file, "
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("times", [1, 5])
def test_files_that_are_removed_while_they_are_read(
    data: Path, sent: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    left = times

    def write(descriptor: int, target: Path, walk: Walk) -> tuple[str, list[str]]:
        nonlocal left
        (data / "part").touch()

        def removing(*arguments: Any) -> Iterator[Listing]:
            nonlocal left
            for listing in walk(*arguments):
                if left and "part" in listing[1]:
                    left -= 1
                    (data / "part").unlink()
                yield listing

        return write_archive(descriptor, target, removing)

    monkeypatch.setattr(mount_copies, "write_archive", write)
    if times == 1:
        assert "part" in pack(str(data), sent).versions
    else:
        with pytest.raises(OSError, match="part: No such file or directory"):
            pack(str(data), sent)


def test_a_directory_that_is_gone(sent: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(str(tmp_path / "missing"), sent)
    assert list(sent.iterdir()) == []


# --- the other kinds


def test_scratch_folders_and_volumes(session: MakeSession) -> None:
    sources = ("scratch:node/a", "scratch:incarnation/b", "scratch:run/c", "volume:d")
    script = """
for folder in $MUSTER_MOUNT_0 $MUSTER_MOUNT_1 $MUSTER_MOUNT_2 $MUSTER_MOUNT_3; do
    echo $MUSTER_RESTART >> $folder/restarts
    echo $(stat -c %a $folder) $(cat $folder/restarts)
done
[ $MUSTER_RESTART = 2 ]
"""
    made = tuple(mount(source, str(number)) for number, source in enumerate(sources))
    one = session(script, keep=True, mounts=made)
    for incarnation in range(2):
        one.start(0, incarnation=incarnation)
        one.ended(0, incarnation=incarnation)
    one.release(0, incarnation=1)
    one.start(0, incarnation=2)
    one.ended(0, incarnation=2)
    assert (one.folder / "hosts/volumes/d/restarts").read_text() == "0\n1\n2\n"
    assert one.close() == 0
    assert one.output().splitlines() == [
        *("700 0", "1777 0", "700 0", "700 0"),
        *("700 0 1", "1777 1", "700 0 1", "700 0 1"),
        *("700 2", "1777 2", "700 0 1 2", "700 0 1 2"),
    ]
    assert (one.folder / "hosts/volumes/d/restarts").exists(), "it is kept"


def test_a_volume_is_one_for_all_nodes_of_a_machine(session: MakeSession) -> None:
    script = "cd $MUSTER_MOUNT_DATA; touch of-$RANK; until [ -e of-$((1 - RANK)) ]; do :; done"
    one = session(script, nodes=2, mounts=(mount("volume:v"),))
    one.start(0, 1)
    assert {ended["exit_code"] for ended in one.ended(0, 1).values()} == {0}
    assert one.close() == 0


# --- links and paths


def test_links_lead_into_mounts(session: MakeSession, only_here: Path) -> None:
    one = session(
        "cat in/data/given; echo new > in/data/new; readlink in/data",
        mounts=(mount(only_here, link="in/data"), mount("scratch:node/a", "in", link="in")),
    )
    one.start(0)
    assert one.ended(0)[0]["exit_code"] == 0, one.output(stream="err")
    assert one.close() == 0
    assert one.output() == f"given\n{one.folder}/hosts/0/node/mnt/0/data\n"
    assert (only_here / "new").read_text() == "new\n"


def test_mounts_of_one_source_are_one_directory() -> None:
    made = (mount("/a/data", "x"), mount("/b/data", "y"), mount("/a/data", "z"))
    assert NodeMounts(made, "/f").mounted == {
        "/mnt/x": "/f/node/mnt/0/data",
        "/mnt/y": "/f/node/mnt/1/data",
        "/mnt/z": "/f/node/mnt/0/data",
    }
    assert NodeMounts(made, "/f", {"/b/data": "/b/data"}).mounted["/mnt/y"] == "/b/data"
    assert NodeMounts((mount("/", "x"),), "/f").mounted == {"/mnt/x": "/f/node/mnt/0/root"}


# --- plans


def test_all_kinds_of_sources_can_be_mounted(plan_of: PlanOf) -> None:
    sources = ["nfs://server/export", "s3://bucket/data", "/tmp", "volume:v"]
    plan = plan_of(mounts=[{"source": s, "path": f"/mnt/{n}"} for n, s in enumerate(sources)])
    assert problems("far", plan) == []


def test_a_link_into_a_directory_of_the_machine_is_refused(plan_of: PlanOf) -> None:
    plan = plan_of(working_dir="/srv", mounts=[{"source": "/tmp", "link": "data"}])
    (problem,) = problems("far", plan)
    assert problem.message == "the link data would be created in /srv itself"


def test_what_differs_is_noted(plan_of: PlanOf) -> None:
    made = [{"source": "/tmp"}, {"source": "scratch:run/a"}]
    copies = (
        "/tmp: on machines without this directory, each node has a copy, and sees files of other "
        "nodes only when it starts anew after they have ended"
    )
    assert notes(plan_of(nodes=2, mounts=made)) == [
        copies,
        "scratch:run/a is not shared: each node has its own, without what others write",
    ]
    assert notes(plan_of(mounts=made)) == []
    made = [{"source": "/tmp", "path": "/data", "read_only": True}]
    assert notes(plan_of(mounts=made)) == [
        "/data is not there: nodes find /tmp at $MUSTER_MOUNT_DATA",
        "/tmp is not read-only on machines that have it",
    ]
    made = [{"source": "s3://key:secret@bucket/data"}, {"source": "nas:/x", "read_only": True}]
    assert notes(plan_of(nodes=2, mounts=made)) == [
        "s3://key@bucket/data: each node has a copy, and sees files of other nodes only when it "
        "starts anew after they have ended",
        "nas:/x has to be mounted on the machines, at any path; it is used there",
        "nas:/x is not read-only on machines that have it",
    ]
