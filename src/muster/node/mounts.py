"""The directories that a job mounts, on a node's host.

The supervisor asks which of the submitter's directories the host has, and which NFS exports it has
mounted (`messages.FindFolders`). Programs use these in place. Of the others, a new node gets a copy
in its folder, unpacked from an archive (`node.code`). What has changed in the copy is sent back as
outputs are (`node.tree_streams`).
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import List, Sequence

from muster.node.code import archive
from muster.node.files import remove_tree
from muster.node.messages import FindFolders, FoldersFound, Mount


def find_folders(request: FindFolders) -> FoldersFound:
    """Those that are here."""
    paths = [path for path in request.paths if "\0" not in path and os.path.isdir(path)]
    if not request.exports:
        return FoldersFound(paths)
    from muster.node.nfs import mounted_exports  # few jobs have any

    return FoldersFound(paths, mounted_exports(request.exports))


def set_up(mounts: Sequence[Mount], archives: str, sent: str) -> None:
    """Provide the directories of a new node, and the links to them. archives: the folder of
    archives; sent: that of the notes of `tree_streams`. Raises OSError, whose text says of which
    directory."""
    for mount in mounts:
        where = mount.path
        try:
            _provide(mount, archives, sent)
            if mount.link:
                where = mount.link
                link(os.path.join(mount.path, mount.file) if mount.file else mount.path, where)
        except OSError as error:
            why = error.strerror or str(error)
            raise OSError("the mounted directory %s: %s" % (where, why)) from None


def _provide(mount: Mount, archives: str, sent: str) -> None:
    if os.path.exists(mount.path):
        return
    if not mount.mode:
        raise FileNotFoundError(errno.ENOENT, "it is not there")
    os.makedirs(os.path.dirname(mount.path), 0o700, exist_ok=True)
    if not mount.sha256:
        with contextlib.suppress(FileExistsError):  # made by another node just now
            os.mkdir(mount.path, 0o700)
            os.chmod(mount.path, mount.mode)
        return
    _unpack(mount, archive(archives, mount.sha256), sent)


def _unpack(mount: Mount, path: str, sent: str) -> None:
    from muster.node.transfer import receive  # few nodes get copies
    from muster.node.tree_streams import remember

    part = mount.path + ".part"
    remove_tree(part)
    left_out: List[str] = []
    with open(path, "rb") as file:
        receive(part, file, left_out.append)
    if left_out:
        raise OSError(errno.EINVAL, "its copy has %s" % left_out[0])
    # before it has its name: what is sent back is what changes from now on, and never all of it
    remember(sent, mount.path, part)
    os.rename(part, mount.path)


def link(target: str, place: str) -> None:
    """Make a link to a directory, or to a file in one, in the place of what is there.

    If the code has a folder there, its files are moved into the directory, except those that the
    directory has already. Raises OSError.
    """
    if os.path.isdir(place) and not os.path.islink(place):
        _move_entries(place, target)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)
    os.symlink(target, place)


def _move_entries(folder: str, target: str) -> None:
    """Move the files of one folder into another, and delete those that the other has already."""
    import shutil  # rarely needed

    for here, _, names in os.walk(folder):
        for name in names:
            source = os.path.join(here, name)
            moved = os.path.join(target, os.path.relpath(source, folder))
            if os.path.isdir(target) and os.access(target, os.W_OK) and not os.path.exists(moved):
                os.makedirs(os.path.dirname(moved), exist_ok=True)
                shutil.move(source, moved)
    shutil.rmtree(folder)
