"""Folders of a node that are sent over streams, without what was sent before."""

from __future__ import annotations

import io
import os
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.node.messages import HostFacts
from muster.node.processes import children, state_of
from muster.node.streams import WINDOW, Stream
from support.faults import until
from support.node_servers import Supervisor, server_pid


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "server").greet()
    made.expect(HostFacts)
    yield made
    pid = server_pid(tmp_path / "server")
    made.disconnect()
    os.kill(pid, signal.SIGTERM)
    until(lambda: state_of(pid) in ("", "Z"), "the server has ended")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "outputs"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "sub" / "b").write_text("b")
    return folder


def files_in(content: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    if not content:
        return found
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found[os.path.normpath(member.name)] = file.read()
    return found


def send(node: Supervisor, folder: Path) -> tuple[Stream, bytes]:
    stream = node.streams.open({"kind": "tree", "path": str(folder)})
    return stream, node.collect(stream)


def fetch(node: Supervisor, folder: Path) -> dict[str, bytes]:
    """What is sent; it is kept."""
    stream, content = send(node, folder)
    assert stream.result == {"left_out": [], "error": ""}
    stream.finish({})
    again, _ = send(node, folder.parent / "missing")  # so the result was received
    again.finish({})
    return files_in(content)


def test_files_are_sent_again_when_they_have_changed(node: Supervisor, folder: Path) -> None:
    assert fetch(node, folder) == {"a": b"a", "sub/b": b"b"}
    assert fetch(node, folder) == {}
    times = (folder / "a").stat()
    (folder / "a").write_text("c")
    os.utime(folder / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fetch(node, folder) == {"a": b"c"}, "of the same size and time"
    (folder / "new").write_text("n")
    os.replace(folder / "new", folder / "sub" / "b")
    assert fetch(node, folder) == {"sub/b": b"n"}


def test_what_was_not_kept_is_sent_again(node: Supervisor, folder: Path) -> None:
    stream, _ = send(node, folder)
    stream.cancel("the disk is full")
    assert fetch(node, folder) == {"a": b"a", "sub/b": b"b"}


def test_another_server_knows_what_was_sent(node: Supervisor, folder: Path, tmp_path: Path) -> None:
    fetch(node, folder)
    node.disconnect()
    os.kill(server_pid(tmp_path / "server"), signal.SIGKILL)
    other = Supervisor(tmp_path / "server").greet()
    assert fetch(other, folder) == {}
    other.disconnect()


def test_a_folder_that_does_not_exist_is_empty(node: Supervisor, tmp_path: Path) -> None:
    stream, content = send(node, tmp_path / "missing")
    assert (content, stream.result) == (b"", {"left_out": [], "error": ""})


def sent_of_outputs(node: Supervisor, folder: Path) -> list[str]:
    about = {"kind": "tree", "path": str(folder), "own": "rank-0"}
    content = node.collect(node.streams.open(about))
    if not content:
        return []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return sorted(os.path.normpath(member.name) for member in archive)


def test_nothing_is_sent_of_outputs_without_files(node: Supervisor, tmp_path: Path) -> None:
    folder = tmp_path / "outputs"
    (folder / "rank-0").mkdir(parents=True)
    assert sent_of_outputs(node, folder) == []
    (folder / "other").mkdir()
    assert sent_of_outputs(node, folder) == [".", "other", "rank-0"]


@pytest.mark.parametrize("own", ["a file", "a link to nothing", "a link to an empty folder"])
def test_what_a_program_has_put_in_place_of_its_folder_is_sent(
    node: Supervisor, tmp_path: Path, own: str
) -> None:
    folder = tmp_path / "outputs"
    folder.mkdir()
    place = folder / "rank-0"
    if own == "a file":
        place.touch()
    else:
        (tmp_path / "empty").mkdir()
        place.symlink_to(tmp_path / ("empty" if "empty" in own else "missing"))
    assert sent_of_outputs(node, folder) == [".", "rank-0"]


def test_what_cannot_be_sent_is_named(node: Supervisor, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    stream, content = send(node, folder)
    assert stream.result == {
        "left_out": ["pipe: neither a file, a folder nor a link"],
        "error": "",
    }
    assert "a" in files_in(content)


@pytest.mark.parametrize("path", [None, 3, "\0"])
def test_no_folder(node: Supervisor, path: object) -> None:
    stream = node.streams.open({"kind": "tree", "path": path})
    node.until(lambda: bool(stream.canceled))
    assert "folder" in stream.canceled


def test_who_does_not_read_holds_nothing_up(node: Supervisor, folder: Path, tmp_path: Path) -> None:
    (folder / "large").write_bytes(os.urandom(4 * WINDOW))
    stream = node.streams.open({"kind": "tree", "path": str(folder)})
    other = tmp_path / "other"
    other.mkdir()
    assert fetch(node, other) == {}
    assert files_in(node.collect(stream))["large"] == (folder / "large").read_bytes()


def test_nothing_is_left_of_a_transfer_that_is_canceled(
    node: Supervisor, folder: Path, tmp_path: Path
) -> None:
    (folder / "large").write_bytes(bytes(4 * WINDOW))
    server = server_pid(tmp_path / "server")
    stream = node.streams.open({"kind": "tree", "path": str(folder)})
    node.until(lambda: bool(stream._incoming))
    assert children(server)
    stream.cancel("it is not needed")
    node.streams.changed()
    fetch(node, tmp_path / "missing")
    until(lambda: not children(server), "the end of the transfer")
    assert list((tmp_path / "server" / "sent").iterdir()) == []
