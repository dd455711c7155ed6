"""Archives: malicious ones, modes, links, packing, a full disk."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InvalidInput, StoreError
from muster.storage import archives
from muster.storage.archives import list_files, stays_inside, unpack


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
    "absolute": ([member("/etc/x")], "'/etc/x' would be unpacked outside"),
    "dots": ([member("a/../../x")], "would be unpacked outside"),
    "backslashes": ([member("..\\x")], "would be unpacked outside"),
    "absolute link": ([member("l", SYM, "/etc")], "the link l points outside, to /etc"),
    "link with dots": ([member("a/l", SYM, "../../etc")], "points outside"),
    "through a link": (
        [member("l", SYM, "."), member("l/x")],
        "l/x is below l, which is not a folder",
    ),
    "hard link out": ([member("h", HARD, "../x")], "would be unpacked outside"),
    "hard link to nothing": ([member("h", HARD, "nope")], "points to a file that is not in it"),
    "hard link to a link": (
        [member("l", SYM, "y"), member("h", HARD, "l")],
        "points to a file that is not in it",
    ),
    "link through a link": (
        [member("a/b/x"), member("a/b/c", SYM, "../.."), member("e", SYM, "a/b/c/..")],
        "the link e points outside, to a/b/c/..",
    ),
    "folder over a file": ([member("a"), member("a", tarfile.DIRTYPE)], "holds a twice"),
    "file over a folder": ([member("a", tarfile.DIRTYPE), member("a")], "holds a twice"),
    "link over a folder": ([member("a", tarfile.DIRTYPE), member("a", SYM, ".")], "holds a twice"),
    "file over a link": ([member("l", SYM, "."), member("l")], "holds l twice"),
    "block device": ([member("d", tarfile.BLKTYPE)], "not a file, folder or link"),
    "device": ([member("d", tarfile.CHRTYPE)], "not a file, folder or link"),
    "fifo": ([member("f", tarfile.FIFOTYPE)], "not a file, folder or link"),
    "twice": ([member("a"), member("./a")], "holds a twice"),
    "file as folder": ([member("a"), member("a/b")], "a/b is below a, which is not a folder"),
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
def test_zips_with_names_outside_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(name, "x")
    with pytest.raises(InvalidInput, match="would be unpacked outside"):
        list_files(path)


def test_zips_with_links_to_the_outside_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        packed.writestr(info, "../../etc/passwd")
    with pytest.raises(InvalidInput, match="the link link points outside"):
        list_files(path)


def zip_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("b", "w") as file:
        for _ in range(300):
            file.write(b"\0" * (1 << 20))


def test_zip_bombs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    zip_bomb(path)
    with pytest.raises(InvalidInput, match="more than 200 times its size"):
        list_files(path)


def test_too_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    path = tar(tmp_path / "a.tar.gz", *(member(str(i)) for i in range(4)))
    with pytest.raises(InvalidInput, match="holds more than 3 entries"):
        list_files(path)


def test_too_much_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED", 3)
    path = tar(tmp_path / "a.tar.gz", member("a"), data=b"1234")
    with pytest.raises(InvalidInput, match="unpacks to more than "):
        list_files(path)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(255 - b for b in data[middle : middle + 20]) + data[middle + 20 :]


@pytest.mark.parametrize("damage", [cut, flip, lambda d: b"", lambda d: b"text"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_damaged_archives_are_refused(
    tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
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


def test_links_to_the_inside_are_kept(tmp_path: Path) -> None:
    members = [member("d/f"), member("d/l", SYM, "f"), member("up", SYM, "d/../d/f")]
    path = tar(tmp_path / "a.tar.gz", *members, member("h", HARD, "d/f"))
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    for name in ("d/f", "d/l", "up", "h"):
        assert (target / name).read_bytes() == b"x"


def test_repeated_folders_count_as_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tar(tmp_path / "a.tar.gz", *(member("d", tarfile.DIRTYPE) for _ in range(4)))
    assert list_files(path) == []
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    with pytest.raises(InvalidInput, match="holds more than 3 entries"):
        list_files(path)


def test_loops_of_links_are_not_followed(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", member("a", SYM, "b"), member("b", SYM, "a"), member("f"))
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    assert sorted(os.listdir(target)) == ["a", "b", "f"]


def test_a_failed_unpack_leaves_existing_files_unchanged(tmp_path: Path) -> None:
    """The files unpacked before the failure are removed; those that existed before are kept."""
    target = tmp_path / "t"
    (target / "d").mkdir(parents=True)
    (target / "d" / "mine").write_text("old")
    (target / "z").write_text("old")
    path = tar(tmp_path / "a.tar.gz", member("new/x"), member("l", SYM, "new"), member("z"))
    with pytest.raises(StoreError, match=r"cannot unpack a.tar.gz into .*: File exists"):
        unpack(path, path.name, target)
    assert sorted(os.listdir(target)) == ["d", "z"]
    assert (target / "z").read_text() == "old"


def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "t"
    target.mkdir()
    path = tar(tmp_path / "a.tar.gz", member("a"), member("h", HARD, "a"))
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StoreError, match="No space left on device"):
        unpack(path, path.name, target)
    assert os.listdir(target) == []


def test_of_a_mode_only_the_executable_bit_is_kept(tmp_path: Path) -> None:
    members = [member("run"), member("plain"), member("root")]
    for info, mode in zip(members, (0o700, 0o666, 0o6755), strict=True):
        info.mode = mode
    path = tar(tmp_path / "a.tar.gz", *members)
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    modes = {p.name: p.stat().st_mode & 0o7777 for p in target.iterdir()}
    assert modes == {"run": 0o755, "plain": 0o644, "root": 0o755}


PARTS = st.sampled_from(["a", "b", "c", "..", "."])
LINK_NAMES = ["a", "b", "c", "a/a", "a/b", "b/a", "a/a/a", "c/b/a"]


def _resolve(path: Path, root: Path) -> str | None:
    """The path that the kernel resolves a link to, creating missing folders on the way; None for
    a loop."""
    while True:
        try:
            return os.path.realpath(path, strict=True)
        except FileNotFoundError as error:
            assert str(error.filename).startswith(f"{root}/"), error.filename
            os.mkdir(error.filename)
        except OSError as error:
            assert error.errno == errno.ELOOP
            return None


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(LINK_NAMES),
        st.lists(PARTS, min_size=1, max_size=5).map("/".join),
        min_size=1,
    )
)
def test_links_agree_with_the_kernel(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    """Every link that is accepted resolves to a path inside."""
    links = {n: to for n, to in links.items() if not any(n.startswith(f"{m}/") for m in links)}
    root = tmp_path_factory.mktemp("links")
    for name, to in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(to)
    for name in links:
        if all(stays_inside(other, links) for other in links):
            real = _resolve(root / name, root)
            assert real is None or f"{real}/".startswith(f"{root}/"), (name, real)
