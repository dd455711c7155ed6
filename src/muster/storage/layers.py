"""What the working directory of an ended node had: the stored code under what the node changed.

For large code the working directory is an overlay file system while the node runs. Afterwards the
disk has the two layers: the stored code, and an upper one with what the node wrote and with the
kernel's marks: a character device stands for what was removed, and attributes of a folder say that
it hides the one below it, or which one it was before it was renamed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from muster.node.folder_access import Listing, Walk, open_in, walk

_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_LINKS = 40


class Layers(NamedTuple):
    """The two layers of a working directory."""

    upper: Path
    lower: Path


class _Folder(NamedTuple):
    """A folder of either layer or of both; at least one is not None."""

    upper: int | None
    lower: int | None


def open_place(layers: Layers, upper: int, place: str) -> tuple[int, Walk]:
    """Open a file or folder; links are followed that stay in the working directory. upper: the
    opened folder of this layer, which is closed.

    Returns its descriptor, and what lists a folder for `transfer.send`. Raises OSError.
    """
    with ExitStack() as opened:
        folders = [_keep(opened, _Folder(upper, _open(str(layers.lower))))]
        names = _names(place)
        links = 0
        while names:
            name = names.pop(0)
            if name == "..":
                if len(folders) == 1:
                    raise OSError(errno.EXDEV, "A link leads out of the working directory")
                folders.pop()
                continue
            holder = _holder(folders[-1], name)
            if holder is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            mode = os.stat(name, dir_fd=holder, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                target, links = os.readlink(name, dir_fd=holder), links + 1
                if os.path.isabs(target) or links > _MAX_LINKS:
                    raise OSError(errno.EXDEV, "A link leads out of the working directory")
                names = [*_names(target), *names]
            elif stat.S_ISDIR(mode):
                folders.append(_keep(opened, _below(layers, folders[-1], name)))
            elif names:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            else:
                return open_in(holder, name), walk
        kept = _reopen(layers, folders[-1], ())
    # another descriptor, as the listing closes those of the folder
    return os.dup(_either(kept)), lambda _descriptor, on_error: _walk(layers, kept, on_error)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _either(folder: _Folder) -> int:
    descriptor = folder.lower if folder.upper is None else folder.upper
    assert descriptor is not None
    return descriptor


def _keep(opened: ExitStack, folder: _Folder) -> _Folder:
    for descriptor in folder:
        if descriptor is not None:
            opened.callback(os.close, descriptor)
    return folder


def _walk(layers: Layers, root: _Folder, on_error: Callable[[OSError], None]) -> Iterator[Listing]:
    """List a folder and those below it; closes the folder."""
    waiting: list[tuple[str, ...]] = [()]
    at: tuple[str, ...] = ()
    folder = _Folder(None, None)  # the last one, which is the parent of the next one in a deep tree
    with ExitStack() as opened:
        _keep(opened, root)
        opened.callback(lambda: _close(folder))
        while waiting:  # as `transfer.walk`: neither recursive nor with all parents open
            parts = waiting.pop()
            here = "/".join((".", *parts))
            try:
                if parts and parts[:-1] == at:
                    found = _below(layers, folder, parts[-1])
                else:
                    found = _reopen(layers, root, parts)
                _close(folder)
                folder, at = found, parts
                upper, lower = _listed(folder)
                for descriptor, names in ((folder.upper, upper), (folder.lower, lower)):
                    if descriptor is not None and names:
                        yield here, names, descriptor
                folders = [name for name in (*upper, *lower) if _is_folder(folder, name)]
            except OSError as error:
                error.filename = here
                on_error(error)
                continue
            waiting += [(*parts, name) for name in sorted(folders, reverse=True)]


def _reopen(layers: Layers, root: _Folder, parts: tuple[str, ...]) -> _Folder:
    """Open a folder below an open one. Raises OSError."""
    folder = _Folder(*(None if each is None else os.dup(each) for each in root))
    for name in parts:
        try:
            below = _below(layers, folder, name)
        finally:
            _close(folder)
        folder = below
    return folder


def _close(folder: _Folder) -> None:
    for descriptor in folder:
        if descriptor is not None:
            os.close(descriptor)


def _is_folder(folder: _Folder, name: str) -> bool:
    holder = _holder(folder, name)
    return holder is not None and stat.S_ISDIR(_mode(name, holder))


def _listed(folder: _Folder) -> tuple[list[str], list[str]]:
    """The names in a folder that are shown from its upper and from its lower layer."""
    written = [] if folder.upper is None else sorted(os.listdir(folder.upper))
    below = [] if folder.lower is None else sorted(os.listdir(folder.lower))
    shown = [name for name in written if not _is_removed(name, folder.upper)]
    return shown, sorted({*below} - {*written})


def _holder(folder: _Folder, name: str) -> int | None:
    """The layer that shows a name; None if there is no such file."""
    for descriptor in folder:
        if descriptor is not None and _mode(name, descriptor):
            return None if _is_removed(name, descriptor) else descriptor
    return None


def _mode(name: str, folder: int) -> int:
    """The mode of a file in an opened folder; 0 if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _is_removed(name: str, folder: int | None) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _below(layers: Layers, folder: _Folder, name: str) -> _Folder:
    """Open a folder in a folder. Raises OSError."""
    upper = lower = None
    if folder.upper is not None and _mode(name, folder.upper):
        upper = os.open(name, _FOLDER, dir_fd=folder.upper)
        before = _attribute(upper, "redirect")
        if before.startswith("/"):
            lower = _open(os.path.join(layers.lower, *_names(os.path.normpath(before))))
            return _Folder(upper, lower)
        if "/" in before or before == "..":
            raise OSError(errno.EXDEV, "A mark of the kernel leads out of the working directory")
        if _attribute(upper, "opaque"):
            return _Folder(upper, None)
        name = before or name
    if folder.lower is not None and stat.S_ISDIR(_mode(name, folder.lower)):
        lower = _open(name, folder.lower)
    return _Folder(upper, lower)


def _open(path: str, folder: int | None = None) -> int | None:
    """Open a folder of a layer, which may not have it."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return os.open(path, _FOLDER, dir_fd=folder)
    return None


def _attribute(folder: int, name: str) -> str:
    """The kernel's mark on a folder of the upper layer; "" without one."""
    for space in ("trusted", "user"):  # the latter in a user namespace
        with suppress(OSError, AttributeError):
            return os.fsdecode(os.getxattr(folder, f"{space}.overlay.{name}"))
    return ""
