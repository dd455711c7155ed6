"""Archives from anywhere, unpacked so that nothing lands outside and nothing explodes.

`archive_readers` knows the formats; the rules are here and are the same for all of them.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from muster.errors import StoreError
from muster.storage.archive_readers import Entry, Reader, open_archive, refusal

MAX_ENTRIES = 100_000
MAX_UNPACKED = 20 << 30  # bytes
#: An archive that grows by more than this, and beyond the size below, was made to.
MAX_RATIO, RATIO_MATTERS_FROM = 200, 256 << 20
#: Linux follows so many links in a path and no more.
_MAX_HOPS = 40


def list_files(path: Path) -> list[str]:
    """The files in an archive, every byte of which was read.

    Raises InvalidInput if it is unsafe, damaged or too large.
    """
    with open_archive(path, path.name) as reader:
        entries = _checked(reader, path)
        for entry in entries:
            if entry.kind == "file":
                for _ in reader.blocks(entry):
                    pass
        return [entry.name for entry in entries if entry.kind != "folder"]


def names_in(path: Path, archive: str) -> list[str]:
    """The same of an archive that was stored, and so was read before. archive: what it was
    called."""
    with open_archive(path, archive) as reader:
        return [entry.name for entry in _checked(reader, path) if entry.kind != "folder"]


def read_start(path: Path, archive: str, name: str, length: int) -> bytes:
    """How a file in an archive begins; nothing if it is no plain file. archive: what that was
    called. Raises InvalidInput."""
    with open_archive(path, archive) as reader:
        for entry in _checked(reader, path):
            if entry.name == name and entry.kind == "file":
                return next(reader.blocks(entry), b"")[:length]
    return b""


def unpack(path: Path, name: str, target: Path) -> None:
    """Unpack into an existing folder. name: what the archive was called, which tells its format.

    Executable stays executable; all else of owners, modes and times is left out. Raises
    InvalidInput before anything is written if it is unsafe or too large, StoreError if the folder
    cannot take it; on any failure nothing of it is left in the folder.
    """
    before = set(os.listdir(target))
    with open_archive(path, name) as reader:
        entries = _checked(reader, path)
        tops = {entry.name.partition("/")[0] for entry in entries} - before
        try:
            _write(reader, entries, target)
        except BaseException as error:
            _remove(target, tops)
            if isinstance(error, OSError):
                why = error.strerror or str(error)
                raise StoreError(f"cannot unpack {name} into {target}: {why}") from None
            raise


def pack(folder: Path, files: Sequence[str], to: IO[bytes], *, follow: bool = False) -> None:
    """A tar of these files and links of a folder; the same files give the same bytes.

    Links that go by a way outside of the folder are made to go straight to where they lead.
    follow: what links lead to is packed in their place.
    """
    linked = [] if follow else [name for name in files if (folder / name).is_symlink()]
    links = {name: os.readlink(folder / name) for name in linked}
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in files:
            path = folder / name
            info = tarfile.TarInfo(name)
            if name in links:
                info.type, info.linkname = tarfile.SYMTYPE, links[name]
                if not stays_inside(name, links):
                    parent = os.path.realpath(path.parent)
                    info.linkname = os.path.relpath(os.path.realpath(path), parent)
                archive.addfile(info)
                continue
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                info.size = status.st_size
                info.mode = 0o755 if status.st_mode & 0o111 else 0o644
                archive.addfile(info, file)


def stays_inside(name: str, links: Mapping[str, str]) -> bool:
    """Whether the link of this name leads nowhere but into the tree, by whatever other links.

    links: every link of the tree -> where it leads. Counting `..` is not enough: after a link to
    the root of the tree, one more is outside.
    """
    here: list[str] = []
    todo = name.split("/")[::-1]
    hops = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return False
            here.pop()
            continue
        here.append(part)
        onward = links.get("/".join(here))
        if onward is not None:
            hops += 1
            if hops > _MAX_HOPS:
                return True  # nobody can follow it
            if onward.startswith("/"):
                return False
            here.pop()
            todo += onward.split("/")[::-1]
    return True


def _checked(reader: Reader, path: Path) -> list[Entry]:
    """Every entry, once all are known to be safe."""
    entries: dict[str, Entry] = {}
    count = total = 0
    packed = path.stat().st_size
    for entry in reader.entries():
        count += 1
        total += entry.cost
        if count > MAX_ENTRIES:
            raise refusal(reader.name, f"holds more than {MAX_ENTRIES:,} entries")
        if total > MAX_UNPACKED:
            raise refusal(reader.name, "unpacks to more than 20 GiB")
        if total > RATIO_MATTERS_FROM and total > MAX_RATIO * packed:
            raise refusal(reader.name, f"unpacks to more than {MAX_RATIO} times its size")
        if not entry.name:
            continue
        known = entries.get(entry.name)
        if known is not None and {known.kind, entry.kind} != {"folder"}:
            raise refusal(reader.name, f"holds {entry.name} twice")
        entries[entry.name] = entry
    _check_links(reader.name, entries)
    return list(entries.values())


def _check_links(name: str, entries: dict[str, Entry]) -> None:
    links = {entry.name: entry.link for entry in entries.values() if entry.kind == "symlink"}
    for entry in entries.values():
        if entry.kind == "symlink" and not stays_inside(entry.name, links):
            raise refusal(name, f"the link {entry.name} leads outside, to {entry.link}")
        if entry.kind == "hardlink":
            target = entries.get(entry.link)
            if target is None or target.kind != "file":
                raise refusal(name, f"the link {entry.name} leads to no file of it")
        for parent in PurePosixPath(entry.name).parents:
            above = entries.get(str(parent))
            if above is not None and above.kind != "folder":
                raise refusal(name, f"{entry.name} lies below {parent}, which is no folder")


def _write(reader: Reader, entries: list[Entry], target: Path) -> None:
    for entry in entries:
        place = target / entry.name
        if entry.kind == "folder":
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "file":
            with open(place, "xb") as file:
                for block in reader.blocks(entry):
                    file.write(block)
            place.chmod(0o755 if entry.mode & 0o111 else 0o644)
    # links last: a file written through a link could land anywhere
    for entry in entries:
        if entry.kind == "symlink":
            (target / entry.name).symlink_to(entry.link)
        elif entry.kind == "hardlink":
            os.link(target / entry.link, target / entry.name)


def _remove(target: Path, names: set[str]) -> None:
    import shutil

    for name in names:
        path = target / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
