"""Archives of code that the node servers of a machine share. See also tests/node/test_server.py."""

from __future__ import annotations

import hashlib
import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.node.code import Archives, CannotFetch, wait_for_other
from muster.node.messages import Code, HostFacts, Joined, Launched, Leave
from muster.node.processes import state_of
from muster.node.transfer import open_source, send
from support.faults import until
from support.node_servers import Supervisor, kill, server_pid, server_pid_if_any

NAME = "0" * 64


def begin(archives: Archives, name: str = NAME) -> tuple[int, bool]:
    """Begin to fetch an archive that is not there."""
    begun = archives.begin(name)
    assert begun is not None
    return begun


def fetched(archives: Archives, content: bytes = b"the code") -> None:
    """Fetch an archive."""
    descriptor, is_mine = begin(archives)
    assert is_mine
    os.write(descriptor, content)
    archives.keep(NAME, descriptor)


def test_an_archive_stays_until_the_last_server_leaves(tmp_path: Path) -> None:
    place = tmp_path / "code"
    first, second = Archives(str(place)), Archives(str(place))
    assert not first.hold(NAME)
    fetched(first)
    assert second.hold(NAME) and second.hold(NAME)
    first.close()
    assert (place / NAME).read_bytes() == b"the code"
    second.close()
    assert not place.exists()


def test_one_server_fetches_and_the_others_wait(tmp_path: Path) -> None:
    first, second = Archives(str(tmp_path / "code")), Archives(str(tmp_path / "code"))
    descriptor, is_mine = begin(first)
    other, is_others = begin(second)
    assert (is_mine, is_others) == (True, False)
    waiting = wait_for_other(other)
    assert os.waitpid(waiting, os.WNOHANG) == (0, 0)
    first.keep(NAME, descriptor)
    assert os.waitpid(waiting, 0)[1] == 0
    assert second.hold(NAME)


def test_one_that_another_server_has_just_fetched_is_not_fetched_again(tmp_path: Path) -> None:
    """It came between the look for it and the begin."""
    first, second = Archives(str(tmp_path / "code")), Archives(str(tmp_path / "code"))
    assert not second.hold(NAME)
    fetched(first)
    assert second.begin(NAME) is None
    first.close()
    assert [path.name for path in (tmp_path / "code").iterdir()] == [NAME]


def test_what_killed_servers_have_left_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "code"
    killed = Archives(str(place))
    fetched(killed)
    part, _ = begin(killed, "1" * 64)
    for descriptor in (part, *killed._held.values()):
        os.close(descriptor)
    (place / "of somebody else").touch()
    Archives(str(place)).close()
    assert [path.name for path in place.iterdir()] == ["of somebody else"]


def test_an_archive_that_was_removed_is_fetched_again(tmp_path: Path) -> None:
    one = Archives(str(tmp_path / "code"))
    fetched(one)
    (tmp_path / "code" / NAME).unlink()
    assert not one.hold(NAME)
    fetched(one)
    assert one.hold(NAME)


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this user cannot give files away")
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(PermissionError, match="it belongs to another user"):
        Archives(str(tmp_path)).begin(NAME)


@pytest.mark.parametrize("name", ["../x", "", "A" * 64])
def test_no_hash(tmp_path: Path, name: str) -> None:
    with pytest.raises(CannotFetch, match="not a SHA-256"):
        Archives(str(tmp_path)).begin(name)


# --- servers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Supervisor]]:
    """Two servers that share archives, and their supervisors."""
    shared = str(tmp_path / "code")
    made = [Supervisor(tmp_path / name, archives=shared).greet() for name in ("a", "b")]
    for one in made:
        one.expect(HostFacts)
    yield made
    for one in made:
        one.disconnect()
        pid = server_pid_if_any(one.folder)
        if pid is not None:
            kill(pid)


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / "main").write_text("exit 0")
    stream = io.BytesIO()
    descriptor = open_source(str(folder))
    send(descriptor, "code", stream, pytest.fail)
    os.close(descriptor)
    return stream.getvalue()


def launch(one: Supervisor, archive: bytes) -> None:
    code = Code(hashlib.sha256(archive).hexdigest(), f"{one.folder}/node/work")
    one.send(one.launch(0, "sh", "main")._replace(code=code, folders=[f"{one.folder}/logs"]))
    one.expect(Launched)


def test_code_is_sent_to_one_server_of_a_machine(
    servers: list[Supervisor], archive: bytes, tmp_path: Path
) -> None:
    first, second = servers
    launch(first, archive)
    first.until(lambda: bool(first.streams.count))  # it fetches it
    launch(second, archive)
    first.send_code(archive)
    for one in servers:
        one.expect(Joined)
    assert second.streams.opened() == []
    for one, is_there in ((first, True), (second, False)):
        pid = server_pid(one.folder)
        one.send(Leave())
        until(lambda pid=pid: state_of(pid) in ("", "Z"), "the server has left")  # type: ignore[misc]
        assert (tmp_path / "code").exists() is is_there


def test_another_server_fetches_the_code_if_the_first_is_killed(
    servers: list[Supervisor], archive: bytes
) -> None:
    first, second = servers
    launch(first, archive)
    first.until(lambda: bool(first.streams.count))
    launch(second, archive)
    os.kill(server_pid(first.folder), signal.SIGKILL)
    second.send_code(archive)
    second.expect(Joined)
