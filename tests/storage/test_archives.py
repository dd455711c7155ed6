"""Archives made by enemies."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.errors import InvalidInput
from muster.storage import archives
from muster.storage.archives import list_files, unpack


def tar(path: Path, *members: tarfile.TarInfo, data: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for info in members:
            if info.isreg():
                info.size = len(data)
            packed.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


SYM, HARD = tarfile.SYMTYPE, tarfile.LNKTYPE
ATTACKS: dict[str, tuple[list[tarfile.TarInfo], str]] = {
    "absolute": ([member("/etc/x")], "'/etc/x' would land outside"),
    "dots": ([member("a/../../x")], "would land outside"),
    "backslashes": ([member("..\\x")], "would land outside"),
    "absolute link": ([member("l", SYM, "/etc")], "the link l leads outside, to /etc"),
    "link with dots": ([member("a/l", SYM, "../../etc")], "leads outside"),
    "through a link": (
        [member("l", SYM, "."), member("l/x")],
        "l/x lies below l, which is no folder",
    ),
    "hard link out": ([member("h", HARD, "../x")], "would land outside"),
    "hard link to nothing": ([member("h", HARD, "nope")], "leads to no file of it"),
    "hard link to a link": (
        [member("l", SYM, "y"), member("h", HARD, "l")],
        "leads to no file of it",
    ),
    "device": ([member("d", tarfile.CHRTYPE)], "neither file, folder nor link"),
    "fifo": ([member("f", tarfile.FIFOTYPE)], "neither file, folder nor link"),
    "twice": ([member("a"), member("./a")], "holds a twice"),
    "file as folder": ([member("a"), member("a/b")], "a/b lies below a, which is no folder"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_and_leave_nothing(tmp_path: Path, attack: str) -> None:
    members, message = ATTACKS[attack]
    path = tar(tmp_path / "a.tar.gz", member("good"), *members)
    target = tmp_path / "target"
    target.mkdir()
    for attempt in (lambda: list_files(path), lambda: unpack(path, path.name, target)):
        with pytest.raises(InvalidInput, match="is refused") as caught:
            attempt()
        assert message in str(caught.value)
    assert list(target.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "target"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_zip_slip(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(name, "x")
    with pytest.raises(InvalidInput, match="would land outside"):
        list_files(path)


def test_zip_with_a_link_out(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        packed.writestr(info, "../../etc/passwd")
    with pytest.raises(InvalidInput, match="the link link leads outside"):
        list_files(path)


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("b", "w") as file:
        for _ in range(300):
            file.write(b"\0" * (1 << 20))


def test_bomb(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    zip_bomb(path)
    with pytest.raises(InvalidInput, match="more than 200 times its size"):
        list_files(path)


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    path = tar(tmp_path / "a.tar.gz", *(member(str(i)) for i in range(4)))
    with pytest.raises(InvalidInput, match="holds more than 3 entries"):
        list_files(path)


def test_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED", 3)
    path = tar(tmp_path / "a.tar.gz", member("a"), data=b"1234")
    with pytest.raises(InvalidInput, match="unpacks to more than 20 GiB"):
        list_files(path)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(255 - b for b in data[middle : middle + 20]) + data[middle + 20 :]


@pytest.mark.parametrize("damage", [cut, flip, lambda d: b"", lambda d: b"text"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_damaged(tmp_path: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    content = bytes(i * 7 % 251 for i in range(50_000))
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("a", content)
    else:
        tar(path, member("a"), data=content)
    path.write_bytes(damage(path.read_bytes()))
    target = tmp_path / "t"
    target.mkdir()
    with pytest.raises(InvalidInput, match="damaged"):
        unpack(path, name, target)


def test_links_inside_stay(tmp_path: Path) -> None:
    members = [member("d/f"), member("d/l", SYM, "f"), member("up", SYM, "d/../d/f")]
    path = tar(tmp_path / "a.tar.gz", *members, member("h", HARD, "d/f"))
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    for name in ("d/f", "d/l", "up", "h"):
        assert (target / name).read_bytes() == b"x"
