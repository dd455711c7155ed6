"""Faults of the way to hosts, and of their disks. For networks see hosts/test_faults.py and
test_dialed_faults.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command import muster
from support.remote_engine import CUT, Machine, have_empty
from support.sessions import Session

MakeSession = Callable[..., Session]


@pytest.fixture
def kind(prepare: Callable[[str], str]) -> str:
    return prepare("servers")


def bridges(one: Session) -> list[int]:
    """The processes that carry what a session and the servers of its nodes say."""
    children = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
    return [pid for pid in map(int, children) if b"\0open\0" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


COUNT = "until [ -e {flag} ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo last $i; exit 7"


@pytest.mark.subject("partition", kind="servers")
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="noticed at once"),
        pytest.param(signal.SIGSTOP, id="silent", marks=pytest.mark.slow),
    ],
)
def test_contact_that_is_cut_in_both_directions_and_comes_back(
    session: MakeSession, own_home: Path, tmp_path: Path, number: int
) -> None:
    """Programs continue. Later, what has happened is reported, and what is wanted is done."""
    one = session(COUNT.format(flag=tmp_path / "flag-$RANK"), nodes=2)
    one.start(0, 1)
    one.ready(0, 1)
    (own_home / CUT).touch()
    for pid in bridges(one):
        os.kill(pid, number)
    unreachable = set[int]()
    while unreachable != {0, 1}:
        event = one.event()
        assert event["event"] == "NodeUnreachable", event
        unreachable.add(event["rank"])
    (tmp_path / "flag-0").touch()
    one.stop(1)
    (own_home / CUT).unlink()
    found: dict[int, list[str]] = {0: [], 1: []}
    ends = {}
    while set(ends) != {0, 1}:
        event = one.event()
        found[event["rank"]].append(event["event"])
        if event["event"] == "NodeEnded":
            ends[event["rank"]] = event["exit_code"]
    assert ends == {0: 7, 1: 143}
    for names in found.values():
        assert [name for name in names if name != "NodeUnreachable"] == [
            "NodeReachable",
            "NodeEnded",
        ]
    assert one.close() == 0
    for rank in (0, 1):
        lines = [line for line in one.output(rank).splitlines() if line.startswith("line")]
        assert lines == [f"line {number}" for number in range(1, len(lines) + 1)]
    assert one.output(0).endswith(f"last {one.output(0).count('line')}\n")


@pytest.mark.subject("full disk", kind="servers")
def test_a_disk_that_is_full_of_output(session: MakeSession) -> None:
    one = session("seq 1 1000000")
    hosts = one.folder / "hosts"
    have_empty(one.home, hosts, "size=2m")
    one.start(0)
    ended = one.ended(0)[0]
    assert ended["exit_code"] != 0
    assert f"the disk was full: {hosts}/0 on " in ended["message"]
    assert one.close() == 0
    lines = one.output().splitlines()
    assert lines[:-1] == [f"{number}" for number in range(1, len(lines))], "what fits is here"


@pytest.mark.subject("full disk", kind="servers")
def test_a_disk_that_is_full_of_outputs(session: MakeSession) -> None:
    """What fits is here, though nothing can be noted of what was sent."""
    one = session('head -c 8000000 /dev/zero > "$MUSTER_OUTPUTS/own" || { echo full; exit 5; }')
    hosts = one.folder / "hosts"
    have_empty(one.home, hosts, "size=2m")
    one.start(0)
    ended = one.ended(0)[0]
    assert ended["exit_code"] == 5
    assert f"the disk was full: {hosts}/0 on " in ended["message"]
    assert one.close() == 0
    assert 0 < (one.folder / "outputs/rank-0/own").stat().st_size <= 2 << 20


@pytest.mark.subject("full disk", kind="servers")
def test_a_disk_on_which_code_does_not_fit(prepare: Callable[[str], str], own_home: Path) -> None:
    prepare("servers")
    code = own_home / "code"
    code.mkdir()
    (code / "main.py").write_text("print()")
    (code / "data").write_bytes(os.urandom(3_000_000))
    machine = Machine.at(own_home / "host")
    have_empty(own_home, machine.archives, "size=1m")
    done = muster("run", "--engine", "servers", str(code), "--entrypoint", "main.py")
    assert done.returncode == 1
    assert "the code: " in done.stderr and "No space left on device" in done.stderr
