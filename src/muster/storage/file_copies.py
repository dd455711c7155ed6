"""Copy and read files. Copies share blocks where the file system can (reflinks: btrfs, XFS)."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import IO

#: ioctl_ficlone(2): the target shares the blocks of the source, and writing to either copies them.
_FICLONE = 0x40049409
#: What file systems answer that cannot share blocks, or not between these two files.
_CANNOT = frozenset(
    (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)
)

_BLOCK = 1 << 20


def digest_of(file: IO[bytes], copy: IO[bytes] | None = None) -> tuple[bytes, int]:
    """SHA-256 and size of the rest of `file`, which is also written to `copy`."""
    import hashlib

    digest, size = hashlib.sha256(), 0
    while block := file.read(_BLOCK):
        digest.update(block)
        size += len(block)
        if copy is not None:
            copy.write(block)
    return digest.digest(), size


def clone(source: int, target: int) -> bool:
    """Fill an empty file with the blocks of another; both are descriptors. False if the file system
    cannot share them. Raises OSError."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise
    return True


class Copier:
    """Copies files between two folders; asks only once whether they can share blocks."""

    def __init__(self) -> None:
        #: Whether blocks are shared, as far as is known.
        self.clones = True

    def copy(self, source: str, target: str, mode: int) -> None:
        """Copy a regular file to a new file with these permissions. Raises OSError."""
        with open(source, "rb") as given, open(target, "xb") as made:
            self.clones = self.clones and clone(given.fileno(), made.fileno())
            if not self.clones:
                while block := given.read(_BLOCK):
                    made.write(block)
            os.fchmod(made.fileno(), mode)


def can_clone(source: str, folder: str) -> bool:
    """Whether a file that is copied into the folder would share its blocks."""
    probe = f"{folder}/.probe-{os.getpid()}"
    try:
        with open(source, "rb") as given, open(probe, "xb") as made:
            return clone(given.fileno(), made.fileno())
    except OSError:
        return False  # copying reports what is wrong
    finally:
        if os.path.lexists(probe):
            os.unlink(probe)
