"""Output directories of nodes that start elsewhere, or anew: they have what was collected."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.engines.remote import outputs
from support.node_servers import kill
from support.remote_engine import Machine, have_empty
from support.sessions import Session

MakeSession = Callable[..., Session]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


def resumed(one: Session) -> Session:
    """Suspend the run, and resume it: its nodes end, and start in new folders."""
    assert one.close() == 0
    assert not any(one.host_folder(node.rank).exists() for node in one.plan.nodes)
    assert not (one.folder / "sent").exists(), "nothing is left of what was sent"
    one._turn += 1
    one._open()
    return one


def files_in(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def archives_of(one: Session) -> list[Path]:
    """The archives that there are, here and there."""
    here = [path for path in one.folder.glob("sent/outputs/*") if path.suffix != ".json"]
    return [*here, *Machine.at(one.home / "host").archives.glob("*")]


def collected(one: Session) -> dict[str, int]:
    """When each output was last replaced here."""
    root = one.folder / "outputs"
    return {
        str(path.relative_to(root)): path.stat().st_ctime_ns
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_suspended_run_finds_its_outputs(session: MakeSession) -> None:
    one = session(
        "cd $MUSTER_OUTPUTS; cat step; echo $MUSTER_RESTART >> step; "
        "[ $RANK = 1 ] || echo $MUSTER_RESTART >> ../shared; cat ../shared; ls ..; ls -A .",
        nodes=2,
    )
    for incarnation in range(3):
        one.start(0, 1, incarnation=incarnation)
        one.ended(0, 1, incarnation=incarnation)
        numbers = "".join(f"{number}\n" for number in range(incarnation + 1))
        assert files_in(one.folder / "outputs") == {
            "rank-0/step": numbers,
            "rank-1/step": numbers,
            "shared": numbers,
        }
        one = resumed(one)
    assert one.close() == 0
    assert one.output(1).split() == [
        *("rank-1", "step"),
        *("0", "0", "rank-1", "shared", "step"),
        *("0", "1", "0", "1", "rank-1", "shared", "step"),
    ], "a node gets nothing of another one's directory"


def test_modes_times_links_and_folders_travel(session: MakeSession) -> None:
    write = (
        "umask 22; mkdir -p a/b empty; echo x > a/b/tool; chmod 750 a/b/tool; ln -s a/b/tool link; "
        "ln -s /no/such broken; touch -d '2020-02-03 04:05:06.785' a/b/tool; chmod 700 a"
    )
    show = "stat -c '%n %a %.2Y %F' a a/b a/b/tool empty; readlink link broken"
    one = session(f"cd $MUSTER_OUTPUTS; [ -e a ] || ( {write} ); {show}")
    one.start(0)
    one.ended(0)
    one = resumed(one)
    one.start(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0
    lines = one.output().splitlines()
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    folders = [line.rsplit(" ", 2) for line in first]
    assert [line.split()[:2] for line in first] == [line.split()[:2] for line in second]
    assert first[2] == second[2], folders


def test_nothing_is_sent_to_a_node_that_has_it(session: MakeSession) -> None:
    """A restart on the same machine, in place or not: what it has is what it has written."""
    for keep in (False, True):
        one = session(
            'cd $MUSTER_OUTPUTS; echo $MUSTER_RESTART >> step; stat -c "%i %z" given >> seen; '
            "[ -e given ] || echo x > given",
            keep=keep,
        )
        for incarnation in range(3):
            one.start(0, incarnation=incarnation)
            one.ended(0, incarnation=incarnation)
        assert archives_of(one) == []
        assert one.close() == 0
        seen = (one.folder / "outputs/rank-0/seen").read_text().splitlines()
        assert len(seen) == 2
        assert seen[0] == seen[1]
        assert (one.folder / "outputs/rank-0/step").read_text() == "0\n1\n2\n"


def test_only_what_has_changed_comes_back(session: MakeSession) -> None:
    one = session(
        "cd $MUSTER_OUTPUTS; [ -e large ] || seq 100000 > large; echo >> changed", nodes=2
    )
    one.start(0, 1)
    one.ended(0, 1)
    before = collected(one)
    one = resumed(one)
    one.start(0, 1, incarnation=1)
    one.ended(0, 1, incarnation=1)
    assert one.close() == 0
    after = collected(one)
    assert {name for name in after if after[name] != before[name]} == {
        "rank-0/changed",
        "rank-1/changed",
    }


@pytest.mark.parametrize("keep", [False, True])
def test_nodes_find_what_others_have_written_for_all(session: MakeSession, *, keep: bool) -> None:
    """Also those that are restarted in place, with their own files as they are there."""
    one = session(
        "cd $MUSTER_RUN_OUTPUTS; cat checkpoint; echo own >> rank-$RANK/own; touch $TMPDIR/left; "
        "[ $RANK != $MUSTER_RESTART ] || echo of $RANK >> checkpoint",
        nodes=3,
        keep=keep,
    )
    for incarnation in range(3):
        one.start(0, 1, 2, incarnation=incarnation)
        one.ended(0, 1, 2, incarnation=incarnation)
        assert archives_of(one) == []
    assert one.close() == 0
    for rank in range(3):
        assert one.output(rank) == "of 0\nof 0\nof 1\n"
    assert files_in(one.folder / "outputs") == {
        "checkpoint": "of 0\nof 1\nof 2\n",
        **{f"rank-{rank}/own": "own\n" * 3 for rank in range(3)},
    }


def test_a_machine_that_has_nothing_any_more(session: MakeSession) -> None:
    """Its server was killed, and its folder is gone: as on another machine."""
    one = session("cd $MUSTER_OUTPUTS; cat step; echo $MUSTER_RESTART >> step", nodes=2)
    one.start(0, 1)
    one.ended(0, 1)
    kill(one.servers()[0])
    shutil.rmtree(one.host_folder(0))
    one.start(0, 1, incarnation=1)
    ended = set[int]()
    while ended != {0, 1}:  # the loss of contact may be reported, or not
        event = one.event()
        if event["event"] == "NodeEnded":
            ended.add(event["rank"])
    assert one.close() == 0
    assert one.output(0) == one.output(1) == "0\n"


def test_a_session_that_takes_over(session: MakeSession) -> None:
    """It knows what nodes have, and what they lack."""
    one = session(
        "cd $MUSTER_OUTPUTS; cat step ../shared; stat -c %i step; echo $MUSTER_RESTART >> step; "
        "[ $RANK = 1 ] || echo $MUSTER_RESTART > ../shared",
        nodes=2,
    )
    one.start(0, 1)
    one.ended(0, 1)
    one.start(0, 1, incarnation=1)
    one.ended(0, 1, incarnation=1)
    one = one.replaced()
    one.start(0, 1, incarnation=2)
    one.ended(0, 1, incarnation=2)
    assert archives_of(one) == []
    assert one.close() == 0
    numbers = one.output(1).split()
    inode = numbers[2]
    assert numbers == ["0", "0", inode, "0", "1", "1", inode], "its own were not sent again"


def test_outputs_of_a_folder_that_was_left_are_newer(session: MakeSession) -> None:
    """They could not be collected: another node that starts there does not lose them."""
    one = session("cd $MUSTER_OUTPUTS; cat step; echo $MUSTER_RESTART >> step; echo same > same")
    one.start(0)
    one.ended(0)
    step = one.host_folder(0) / "run/outputs/rank-0/step"
    one = one.replaced()  # it does not know of the file that is written now
    (one.folder / "sent/outputs/0.json").unlink()
    step.write_text("newer\n")
    one.start(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0
    assert one.output() == "newer\n"
    assert (one.folder / "outputs/rank-0/step").read_text() == "newer\n1\n"


def test_outputs_that_are_too_large_are_not_sent(
    session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = session("cd $MUSTER_OUTPUTS; [ -e large ] || truncate -s 5G large; echo >> small")
    root = one.folder / "outputs"
    (root / "rank-0").mkdir(parents=True)
    with (root / "rank-0/large").open("wb") as file:
        file.truncate(outputs.LIMIT + 1)
    one.start(0)
    ended = one.ended(0)[0]
    assert (ended["exit_code"], ended["reason"]) == (None, "not_started")
    assert ended["message"] == (
        "the run's outputs cannot be sent to its machine: the files that it lacks there have more "
        f"than 4GiB: delete those that it can do without, in {root}, or have checkpoints written "
        "to a mount"
    )
    (root / "rank-0/large").unlink()
    one.start(0, incarnation=1)
    one.kill(0, incarnation=1)
    one.ended(0, incarnation=1)
    assert one.close() == 0


def test_a_full_disk_there(session: MakeSession) -> None:
    one = session("true")
    (one.folder / "outputs/rank-0").mkdir(parents=True)
    (one.folder / "outputs/rank-0/large").write_bytes(os.urandom(8 << 20))
    have_empty(one.home, one.folder / "hosts", "size=6m")
    one.start(0)
    ended = one.ended(0)[0]
    assert ended["reason"] == "not_started"
    assert "No space left on device" in ended["message"]
    assert one.close() == 0
    assert (one.folder / "outputs/rank-0/large").stat().st_size == 8 << 20


def test_links_here_are_not_followed(session: MakeSession, tmp_path: Path) -> None:
    """A program could have made them: what they point to is the submitter's."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("key")
    root = "outputs"
    one = session("cd $MUSTER_RUN_OUTPUTS; find . -type f; readlink shared", nodes=1)
    (one.folder / root).mkdir()
    (one.folder / root / "rank-0").symlink_to(tmp_path / "secrets")
    (one.folder / root / "shared").symlink_to(tmp_path / "secrets")
    one.start(0)
    one.ended(0)
    assert one.output() == f"{tmp_path}/secrets\n"
    one.close()


def test_an_archive_of_all_is_packed_once(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    (root / "rank-1").mkdir(parents=True)
    (root / "rank-1/own").write_text("own")
    (root / "shared").write_text("shared")
    (root / "rank-7").mkdir()
    (root / "rank-7/of_all").write_text("there are 3 nodes")
    (root / ".muster-0123.part").write_text("it is being received")
    packer = outputs._Packer(root, tmp_path / "sent", 3, [])
    found = dict(packer.pack({rank: (outputs._Held(-1, rank), 0) for rank in range(3)}))
    assert [[*found[rank].archives] for rank in range(3)] == [[""], ["", "rank-1"], [""]]
    assert len({one.archives[""] for one in found.values()}) == 1
    assert set(found[0].files) == {"shared", "rank-7/of_all"}
    assert set(found[1].files) == {"shared", "rank-7/of_all", "rank-1/own"}
    assert len([*(tmp_path / "sent").iterdir()]) == 2
    held = outputs._Held(0, 1, found[1].files)
    assert dict(packer.pack({1: (held, 1)}))[1].archives == {}
    (root / "shared").write_text("changed")
    again = dict(packer.pack({1: (held, 1)}))[1].archives
    assert [*again] == [""]
    assert again[""] != found[1].archives[""]


def test_a_replica_of_an_array_is_sent_its_own_only(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    for rank in (0, 8, 9):
        (root / f"rank-{rank}").mkdir(parents=True)
        (root / f"rank-{rank}/own").write_text(str(rank))
    (root / "shared").write_text("shared")
    packer = outputs._Packer(root, tmp_path / "sent", 10, [range(1, 10)])
    assert [rank for rank in range(10) if packer.may_have(rank)] == [0, 8, 9]
    held = {0: outputs._Held(-1, 0), 1: outputs._Held(4, 8)}
    found = dict(packer.pack({slot: (one, 5) for slot, one in held.items()}))
    assert {slot: {*one.files} for slot, one in found.items()} == {
        0: {"rank-0/own", "shared"},
        1: {"rank-8/own"},
    }
    assert {slot: [*one.archives] for slot, one in found.items()} == {
        0: ["", "rank-0"],
        1: ["rank-8"],
    }
