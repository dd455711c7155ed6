"""Archives made by enemies."""

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
from muster.storage.archives import list_files, pack, stays_inside, unpack


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
    "link through a link": (
        [member("a/b/x"), member("a/b/c", SYM, "../.."), member("e", SYM, "a/b/c/..")],
        "the link e leads outside, to a/b/c/..",
    ),
    "folder over a file": ([member("a"), member("a", tarfile.DIRTYPE)], "holds a twice"),
    "file over a folder": ([member("a", tarfile.DIRTYPE), member("a")], "holds a twice"),
    "link over a folder": ([member("a", tarfile.DIRTYPE), member("a", SYM, ".")], "holds a twice"),
    "file over a link": ([member("l", SYM, "."), member("l")], "holds l twice"),
    "block device": ([member("d", tarfile.BLKTYPE)], "neither file, folder nor link"),
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


def test_the_same_folder_again_and_again_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tar(tmp_path / "a.tar.gz", *(member("d", tarfile.DIRTYPE) for _ in range(4)))
    assert list_files(path) == []
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    with pytest.raises(InvalidInput, match="holds more than 3 entries"):
        list_files(path)


def test_loops_of_links_are_followed_by_nobody(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", member("a", SYM, "b"), member("b", SYM, "a"), member("f"))
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    assert sorted(os.listdir(target)) == ["a", "b", "f"]


def test_nothing_is_left_where_there_was_something(tmp_path: Path) -> None:
    """Of a failure half way: ours goes, what was there stays as it was."""
    target = tmp_path / "t"
    (target / "d").mkdir(parents=True)
    (target / "d" / "mine").write_text("old")
    (target / "z").write_text("old")
    path = tar(tmp_path / "a.tar.gz", member("new/x"), member("l", SYM, "new"), member("z"))
    with pytest.raises(StoreError, match=r"cannot unpack a.tar.gz into .*: File exists"):
        unpack(path, path.name, target)
    assert sorted(os.listdir(target)) == ["d", "z"]
    assert (target / "z").read_text() == "old"


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    target = tmp_path / "t"
    target.mkdir()
    path = tar(tmp_path / "a.tar.gz", member("a"), member("h", HARD, "a"))
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StoreError, match="No space left on device"):
        unpack(path, path.name, target)
    assert os.listdir(target) == []


def test_executable_stays_so_and_no_more(tmp_path: Path) -> None:
    members = [member("run"), member("plain"), member("root")]
    for info, mode in zip(members, (0o700, 0o666, 0o6755), strict=True):
        info.mode = mode
    path = tar(tmp_path / "a.tar.gz", *members)
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    modes = {p.name: p.stat().st_mode & 0o7777 for p in target.iterdir()}
    assert modes == {"run": 0o755, "plain": 0o644, "root": 0o755}


def test_pack_mends_links_that_go_round_by_outside(tmp_path: Path) -> None:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "f").write_text("x")
    (folder / "absolute").symlink_to(folder / "f")
    (folder / "sub" / "round").symlink_to("../../code/f")
    (folder / "sub" / "plain").symlink_to("../f")
    (folder / "loop").symlink_to("loop")
    names = ["absolute", "f", "loop", "sub/plain", "sub/round"]
    path = tmp_path / "a.tar"
    with open(path, "wb") as file:
        pack(folder, names, file)
    assert list_files(path) == names
    target = tmp_path / "t"
    target.mkdir()
    unpack(path, path.name, target)
    assert (target / "absolute").read_text() == (target / "sub" / "round").read_text() == "x"
    assert os.readlink(target / "sub" / "plain") == "../f"


PARTS = st.sampled_from(["a", "b", "c", "..", "."])
PLACES = ["a", "b", "c", "a/a", "a/b", "b/a", "a/a/a", "c/b/a"]


def _where_it_leads(path: Path, root: Path) -> str | None:
    """Where the kernel comes to, were everything there that is missing on the way. None if it
    turns in a circle."""
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
        st.sampled_from(PLACES), st.lists(PARTS, min_size=1, max_size=5).map("/".join), min_size=1
    )
)
def test_links_agree_with_the_kernel(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    """Whatever we let pass, the kernel resolves to a place inside."""
    links = {n: to for n, to in links.items() if not any(n.startswith(f"{m}/") for m in links)}
    root = tmp_path_factory.mktemp("links")
    for name, to in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(to)
    for name in links:
        if all(stays_inside(other, links) for other in links):
            real = _where_it_leads(root / name, root)
            assert real is None or f"{real}/".startswith(f"{root}/"), (name, real)
