"""Files and folders that are sent and received."""

from __future__ import annotations

import inspect
import io
import os
import stat
import struct
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import IO, cast
from urllib.parse import quote_plus

import pytest

from muster.node import transfer
from muster.node.folder_access import open_below, walk
from support.faults import until


def sent(path: str | Path) -> tuple[bytes, list[str]]:
    """The stream with a file or folder, and what was left out."""
    stream, left_out = io.BytesIO(), list[str]()
    descriptor = transfer.open_source(str(path))
    transfer.send(descriptor, transfer.name_of(str(path)), stream, left_out.append)
    os.close(descriptor)
    return stream.getvalue(), left_out


def received(target: str | Path, stream: bytes) -> list[str]:
    """Receive a stream. Returns what was left out."""
    left_out = list[str]()
    transfer.receive(str(target), io.BytesIO(stream), left_out.append)
    return left_out


def test_files_are_announced_before_they_are_created(folder: Path, tmp_path: Path) -> None:
    stream, _ = sent(f"{folder}/.")
    target, announced = tmp_path / "target", list[str]()

    def wanted(name: str, modified: float) -> bool:
        assert not os.path.lexists(target / name)
        announced.append(os.path.normpath(name))
        assert (modified == 5) == (announced[-1] == "deep/er/file")
        return True

    transfer.receive(str(target), io.BytesIO(stream), pytest.fail, wanted)
    assert sorted(announced) == [name for name, kind in tree(target).items() if kind != "/"]


def test_files_that_are_not_wanted(folder: Path, tmp_path: Path) -> None:
    stream, _ = sent(f"{folder}/.")
    target = tmp_path / "target"
    transfer.receive(str(target), io.BytesIO(stream), pytest.fail, lambda name, _: "d" in name)
    kept = {name: kind for name, kind in tree(folder).items() if kind == "/" or "d" in name}
    assert tree(target) == kept


def tree(folder: Path) -> dict[str, str]:
    """Path -> content, target of a link, or "/" of a folder; with its mode where it is unusual."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = "/" if path.is_dir() else path.read_text()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with everything that a folder may contain."""
    folder = tmp_path / "source"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "deep" / "er" / "file").write_text("content")
    (folder / "deep" / "er" / "file").chmod(0o750)
    os.utime(folder / "deep" / "er" / "file", (5, 5))
    (folder / os.fsdecode(b"n\xffame")).write_text("odd")
    (folder / ("long" * 60)).write_text("long")
    (folder / "inside").symlink_to("deep/er")
    (folder / "outside").symlink_to("/etc")
    (folder / "nowhere").symlink_to("missing")
    (folder / "deep").chmod(0o555)
    return folder


def test_a_folder_arrives_as_it_is(folder: Path, tmp_path: Path) -> None:
    stream, left_out = sent(folder)
    assert left_out == received(tmp_path / "copy", stream) == []
    assert tree(tmp_path / "copy") == tree(folder)
    info = (tmp_path / "copy" / "deep" / "er" / "file").stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime) == (0o750, 5)
    assert stat.S_IMODE((tmp_path / "copy" / "deep").stat().st_mode) == 0o555


def test_a_folder_is_copied_into_one_that_exists(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    for _ in range(2):  # the second time, everything is replaced
        received(tmp_path / "copy", sent(folder)[0])
    assert tree(tmp_path / "copy" / "source") == tree(folder)


def test_the_content_of_a_folder_is_copied_without_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    received(tmp_path / "copy", sent(f"{folder}/.")[0])
    assert tree(tmp_path / "copy") == tree(folder)


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/b", "b"), ("a/b/", "b"), ("/", "root"), (".", "."), ("a/.", "."), ("a/b/..", "a")],
)
def test_the_name_of_a_copy(path: str, name: str) -> None:
    assert transfer.name_of(path) == name


def test_a_file_is_copied_to_a_name_and_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("new")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "other").write_text("old")
    (tmp_path / "to other").symlink_to("other")
    for target in ("name", "folder", "to other"):
        received(tmp_path / target, sent(tmp_path / "link")[0])
    assert tree(tmp_path) == {
        "file": "new",
        "folder": "/",
        "folder/link": "new",
        "link": "-> file",
        "name": "new",
        "other": "new",
        "to other": "-> other",
    }


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("file", "missing/", "No such folder"),
        ("file", "missing/name", "No such folder"),
        ("file", "full", "Is a folder; a file cannot replace it"),
        ("folder", "file", "Is a file; a folder cannot replace it"),
    ],
)
def test_targets_that_cannot_be_written(
    tmp_path: Path, source: str, target: str, message: str
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "full" / "file").mkdir(parents=True)
    stream, _ = sent(tmp_path / source)
    with pytest.raises(OSError, match=message):
        received(f"{tmp_path}/{target}", stream)


def test_what_is_no_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    stream, left_out = sent(tmp_path / "source")
    assert left_out == ["source/pipe: neither a file, a folder nor a link"]
    received(tmp_path / "copy", stream)
    assert tree(tmp_path / "copy") == {}
    with pytest.raises(OSError, match="Not a file or a folder"):
        sent(tmp_path / "source" / "pipe")


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("content")
    read = list[str]()
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    received(tmp_path / "pipe", sent(tmp_path / "file")[0])
    reader.join()
    assert (read, (tmp_path / "pipe").is_fifo()) == (["content"], True)


def test_a_file_that_shrinks_keeps_its_announced_size(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5_000_000)
    descriptor = transfer.open_source(str(tmp_path / "file"))
    real = os.fstat

    def fstat_then_truncate(number: int) -> os.stat_result:
        found = real(number)
        os.truncate(tmp_path / "file", 3)
        return found

    stream, left_out = io.BytesIO(), list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fstat", fstat_then_truncate)
        with tarfile.open(fileobj=stream, mode="w|") as tar:
            transfer._add_file(tar, descriptor, "file", left_out.append)
    assert left_out == ["file: the file became shorter; the end of the copy is zeros"]
    received(tmp_path / "copy", stream.getvalue())
    assert (tmp_path / "copy").read_bytes() == b"xxx".ljust(5_000_000, b"\0")


def test_files_without_a_size_are_read(tmp_path: Path) -> None:
    received(tmp_path / "copy", sent("/proc/self/cmdline")[0])
    assert b"python" in (tmp_path / "copy").read_bytes()


def archive(*members: tuple[str, str, str]) -> bytes:
    """A stream with (name, kind, content or link target)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type = {"folder": tarfile.DIRTYPE, "link": tarfile.SYMTYPE}.get(
                kind, tarfile.REGTYPE
            )
            if kind == "link":
                member.linkname = text
            data = text.encode() if kind == "file" else b""
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        [("../x", "file", "bad")],
        [("..", "folder", "")],
        [("/x", "file", "bad")],
        [("d", "folder", ""), ("d/../../x", "file", "bad")],
        [("d", "folder", ""), ("/x", "file", "bad")],
        [("d", "folder", ""), ("d/l", "link", "../.."), ("d/l/x", "file", "bad")],
        [
            ("d", "folder", ""),
            ("d/l", "link", "../.."),
            ("d/l", "folder", ""),
            ("d/l/x", "file", "b"),
        ],
        [("l", "link", ".."), ("l/x", "file", "bad")],
        [
            ("d", "folder", ""),
            ("d/e", "folder", ""),
            ("d/e", "link", "../.."),
            ("d/e/x", "file", "b"),
        ],
    ],
)
def test_a_stream_creates_nothing_outside_the_target(
    tmp_path: Path, members: list[tuple[str, str, str]]
) -> None:
    """Programs of a node may replace what sends, so the receiver trusts no name in the stream."""
    target = tmp_path / "a" / "b"
    target.mkdir(parents=True)
    with pytest.raises(OSError):
        received(target, archive(*members))
    assert not [path for path in tmp_path.rglob("x") if not path.is_relative_to(target)]


def test_a_link_in_place_of_a_folder_is_named(folder: Path, tmp_path: Path) -> None:
    stream, _ = sent(folder)
    target = tmp_path / "copy"
    (target / folder.name).mkdir(parents=True)
    name = next(path.name for path in folder.iterdir() if path.is_dir())
    (target / folder.name / name).symlink_to(tmp_path)
    with pytest.raises(OSError, match=f"The folder {name} is a link there; remove it"):
        received(target, stream)


def test_a_stream_that_breaks_off_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(3_000_000))
    stream, _ = sent(tmp_path / "file")
    (tmp_path / "copy").mkdir()
    with pytest.raises(transfer.TransferError, match="was interrupted"):
        received(tmp_path / "copy", stream[:2_000_000])
    with pytest.raises(transfer.TransferError, match="was interrupted: empty"):
        received(tmp_path / "copy", b"")
    assert tree(tmp_path / "copy") == {}


def test_a_raw_stream_replaces_a_file_only_when_it_is_complete(tmp_path: Path) -> None:
    target, stream = tmp_path / "file", io.BytesIO()
    transfer.send_blocks(io.BytesIO(b"new" * 700_000), stream)
    target.write_text("old")
    for size in (0, 2, 4, 1_000_000, len(stream.getvalue()) - 4, len(stream.getvalue()) - 1):
        with pytest.raises(transfer.TransferError, match="was interrupted"):
            transfer.write(str(target), io.BytesIO(stream.getvalue()[:size]))
        assert tree(tmp_path) == {"file": "old"}
    assert transfer.write(str(target), io.BytesIO(stream.getvalue())) == 2_100_000
    assert target.read_bytes() == b"new" * 700_000


def test_deep_folders_are_listed_without_recursion(tmp_path: Path) -> None:
    (tmp_path / "/".join("d" * 200)).mkdir(parents=True)
    errors = list[OSError]()
    top = os.open(tmp_path, os.O_RDONLY)
    depth = len(inspect.stack(0))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 100)
    try:
        found = [here for here, _, _ in walk(top, errors.append)]
    finally:
        sys.setrecursionlimit(limit)
        os.close(top)
    assert (len(found), errors) == (201, [])


def test_a_bug_is_not_taken_for_an_incomplete_copy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(_path: str, _report: transfer.Report) -> None:
        raise RecursionError("too deep")

    monkeypatch.setitem(transfer._ACTIONS, "send", crash)
    assert transfer.main("send", ".") == transfer.CRASHED
    assert capsys.readouterr().err == "RecursionError: too deep\n"


def test_nothing_below_a_root_is_opened_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "root" / "d").mkdir(parents=True)
    (tmp_path / "root" / "d" / "file").write_text("content")
    (tmp_path / "root" / "link").symlink_to("d")
    os.close(open_below(str(tmp_path / "root"), "d/file"))
    for place in ("link", "link/file"):
        with pytest.raises(OSError):
            open_below(str(tmp_path / "root"), place)


@pytest.mark.parametrize(
    ("action", "path", "code", "message"),
    [
        ("read", "missing", 2, "No such file or directory\n"),
        ("read", ".", 2, "Is a folder; name a file\n"),
        ("send", "/dev/null", 2, "Not a file or a folder\n"),
        ("write", "/", 2, "Is a folder; name a file\n"),
    ],
)
def test_the_program_says_why_it_cannot_copy(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    action: str,
    path: str,
    code: int,
    message: str,
) -> None:
    saved = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    try:
        assert transfer.main(action, path) == code
    finally:
        for number, descriptor in enumerate(saved):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(null)
    assert capsys.readouterr().err == message


def test_holes_stay_holes(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(100 << 20)
    stream = io.BytesIO()
    transfer.send(transfer.open_source(str(tmp_path / "sparse")), "sparse", stream, print)
    stream.seek(0)
    transfer.receive(str(tmp_path / "copy"), stream, print)
    copy = tmp_path / "copy"
    assert copy.stat().st_size == 100 << 20
    assert copy.stat().st_blocks * 512 <= 2 << 20
    assert copy.read_bytes().strip(b"\0") == b"end"


def test_what_loads_the_program_fits_into_a_url_that_proxies_accept() -> None:
    assert len(quote_plus(transfer.LOADER)) < 1 << 10


@pytest.mark.parametrize("sent", [0, 100])
def test_a_program_that_does_not_arrive_whole(sent: int) -> None:
    program = transfer.program()
    words = [sys.executable, "-I", "-S", "-c", transfer.LOADER, str(len(program)), "read", "x"]
    done = subprocess.run(words, input=program[:sent], capture_output=True, timeout=60, check=False)
    assert done.returncode not in (transfer.OK, transfer.INCOMPLETE, transfer.FAILED)
    assert done.stderr == b"the connection was lost before the copy began\n"


@pytest.mark.parametrize("unnamed", [True, False])
def test_an_ended_program_leaves_no_part(tmp_path: Path, unnamed: bool) -> None:
    """unnamed: whether the file system can have files without a name."""
    code = transfer.program()
    if not unnamed:
        code = b"import os\nif hasattr(os, 'O_TMPFILE'): del os.O_TMPFILE\n" + code
    target = tmp_path / "target"
    target.mkdir()
    words = [sys.executable, "-I", "-S", "-c", transfer.LOADER, str(len(code))]
    words += ["write", str(target / "file")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdin is not None
        program.stdin.write(code + struct.pack("!I", 1 << 20) + bytes(1 << 20))
        program.stdin.flush()
        opened = Path(f"/proc/{program.pid}/fd")
        until(lambda: any(str(target) in os.readlink(each) for each in opened.iterdir()))
        assert len(os.listdir(target)) == (0 if unnamed else 1)
        program.terminate()
        assert program.wait() == 143
    assert os.listdir(target) == []


@pytest.mark.parametrize(
    "kind",
    [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE],
)
def test_a_description_that_does_not_fit_into_memory(tmp_path: Path, kind: bytes) -> None:
    """It is refused before it is read."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 1 << 40

    class Endless(io.RawIOBase):
        """The header, and then zeros."""

        read_so_far = 0

        def read(self, size: int = -1) -> bytes:
            head = header.tobuf(tarfile.GNU_FORMAT)[self.read_so_far :][:size]
            self.read_so_far += size
            assert self.read_so_far < 1 << 24, "it is read"
            return head + bytes(size - len(head))

    with pytest.raises(OSError, match=f"the description of a file has {1 << 40} bytes"):
        transfer.receive(str(tmp_path / "target"), cast("IO[bytes]", Endless()), pytest.fail)


def test_descriptions_of_nothing(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1
    one = header.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
    with pytest.raises(OSError, match="no file follows"):
        transfer.receive(str(tmp_path / "target"), io.BytesIO(one * 5000), pytest.fail)


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({"mtime": "nan"}, "invalid member"),
        ({"mtime": "inf"}, "invalid member"),
        ({"mtime": "1e19"}, "invalid member"),
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}, "invalid member|sparse file"),
        ({"GNU.sparse.size": "50000000000", "GNU.sparse.map": "0,0"}, "sparse file"),
    ],
)
def test_what_no_file_can_have(tmp_path: Path, described: dict[str, str], why: str) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("x")
        member.pax_headers, member.size = described, 512
        tar.addfile(member, io.BytesIO(b"0\n".ljust(512, b"\0")))
    with pytest.raises(OSError, match=why):
        received(tmp_path / "copy", stream.getvalue())
    assert sum(path.lstat().st_size for path in tmp_path.iterdir()) <= 512
