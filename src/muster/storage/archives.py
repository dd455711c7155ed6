"""List and unpack archives. Unpacking never writes outside the target folder and is limited
in size.

`archive_readers` reads the formats; the rules here apply to all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from muster.errors import StoreError
from muster.spec.quantities import format_size
from muster.storage.archive_readers import Entry, Reader, open_archive, refusal

MAX_ENTRIES = 100_000
MAX_UNPACKED = 20 << 30  # bytes
#: An archive is refused as malicious if it unpacks to more than this ratio and this many bytes.
MAX_RATIO, RATIO_MATTERS_FROM = 200, 256 << 20
#: Linux follows at most 40 links in a path.
_MAX_HOPS = 40


def list_files(path: Path) -> list[str]:
    """The files in an archive; reads all of them to find damage.

    Raises InvalidInput if it is unsafe, damaged or too large.
    """
    with open_archive(path, path.name) as reader:
        entries = _check_entries(reader, path)
        for entry in entries:
            if entry.kind == "file":
                for _ in reader.blocks(entry):
                    pass
        return [entry.name for entry in entries if entry.kind != "folder"]


def names_in(path: Path, archive: str) -> list[str]:
    """The files and links in a stored archive, which was checked when it was stored. archive: its
    original name."""
    with open_archive(path, archive) as reader:
        return [entry.name for entry in _check_entries(reader, path) if entry.kind != "folder"]


def read_start(path: Path, archive: str, name: str, length: int) -> bytes:
    """The first `length` bytes of a file in an archive; empty if it is not a regular file. archive:
    the archive's original name. Raises InvalidInput."""
    with open_archive(path, archive) as reader:
        for entry in _check_entries(reader, path):
            if entry.name == name and entry.kind == "file":
                return next(reader.blocks(entry), b"")[:length]
    return b""


def unpack(path: Path, name: str, target: Path) -> None:
    """Unpack into an existing folder. name: the archive's original name, which has its format.

    Keeps whether a file is executable, but no owners, other modes or times. Raises InvalidInput
    before anything is written if the archive is unsafe or too large, StoreError if the folder
    cannot be written. After any error the unpacked entries are removed.
    """
    before = set(os.listdir(target))
    with open_archive(path, name) as reader:
        entries = _check_entries(reader, path)
        tops = {entry.name.partition("/")[0] for entry in entries} - before
        try:
            _write(reader, entries, target)
        except BaseException as error:
            _remove(target, tops)
            if isinstance(error, OSError):
                why = error.strerror or str(error)
                raise StoreError(f"cannot unpack {name} into {target}: {why}") from None
            raise


def stays_inside(name: str, links: Mapping[str, str]) -> bool:
    """Whether a link stays inside the tree at every step, including steps through other links.

    links: every link of the tree -> its target. Counting `..` is not enough: after a link to the
    root of the tree, one more `..` is outside.
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
                return True  # the kernel refuses to follow it
            if onward.startswith("/"):
                return False
            here.pop()
            todo += onward.split("/")[::-1]
    return True


def _check_entries(reader: Reader, path: Path) -> list[Entry]:
    """All entries. Raises InvalidInput unless every entry is safe."""
    entries: dict[str, Entry] = {}
    count = total = 0
    packed = path.stat().st_size
    for entry in reader.entries():
        count += 1
        total += entry.cost
        if count > MAX_ENTRIES:
            raise refusal(reader.name, f"holds more than {MAX_ENTRIES:,} entries")
        if total > MAX_UNPACKED:
            raise refusal(reader.name, f"unpacks to more than {format_size(MAX_UNPACKED)}")
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
            raise refusal(name, f"the link {entry.name} points outside, to {entry.link}")
        if entry.kind == "hardlink":
            target = entries.get(entry.link)
            if target is None or target.kind != "file":
                raise refusal(name, f"the link {entry.name} points to a file that is not in it")
        for parent in PurePosixPath(entry.name).parents:
            above = entries.get(str(parent))
            if above is not None and above.kind != "folder":
                raise refusal(name, f"{entry.name} is below {parent}, which is not a folder")


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
