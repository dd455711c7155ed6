"""The files of mounts whose content is given (`mounts: [{files: ...}]`), in a node's folder.

They are written before each incarnation, in place: a file may be mounted by itself. Where nothing
is mounted for the node alone, they are on a disk, and are removed after each incarnation.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import os
from typing import Sequence

from muster.node.launch_message import GivenFile

#: The folder of all such mounts, in the node's.
FOLDER = "files"


def mount_folder(node: str, variable: str) -> str:
    """The folder of a mount's files. node: the node's folder; variable: with the mount's path."""
    return os.path.join(node, FOLDER, variable)


def write(files: Sequence[GivenFile]) -> None:
    """Write the files. Raises OSError."""
    for file in files:
        os.makedirs(os.path.dirname(file.path), 0o755, exist_ok=True)
        content = content_of(file)
        if not os.path.islink(file.path) and os.path.exists(file.path):
            with contextlib.suppress(PermissionError):  # another user's, who lets all write
                os.chmod(file.path, 0o600)  # of the last time: its owner may not be allowed to
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file.path, flags, 0o600)
        with open(descriptor, "wb") as opened:
            opened.write(content)
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, file.mode)


def content_of(file: GivenFile) -> bytes:
    """The content of a file. Raises OSError."""
    if not file.is_base64:
        return file.content.encode()
    try:
        return binascii.a2b_base64(file.content)
    except binascii.Error:
        name = os.path.basename(file.path)
        raise OSError(errno.EINVAL, "the content of the file %s is not base64" % name) from None


def remove(files: Sequence[GivenFile]) -> None:
    """Remove the files, as far as they are there, or what is in them."""
    for file in files:
        with contextlib.suppress(OSError):
            if file.is_mounted:
                os.truncate(file.path, 0)
            else:
                os.unlink(file.path)
