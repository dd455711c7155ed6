"""Create FIFOs, on a file system that may have none."""

from __future__ import annotations

import errno
from pathlib import Path

from muster.errors import StoreError
from muster.file_system import file_system_of
from muster.node.files import ensure_fifo

#: What a file system without FIFOs answers: mknod(2) names EPERM.
_NO_FIFOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EIO)


def make_fifo(path: Path) -> None:
    """Create a FIFO if there is none, replacing any other file. Raises OSError, also if the path is
    a folder; StoreError if the file system has no FIFOs."""
    try:
        ensure_fifo(path)
    except OSError as error:
        if error.errno not in _NO_FIFOS:
            raise
        where = file_system_of(path.parent)
        raise StoreError(
            f"cannot create the FIFO {path} on {where}: {error.strerror}; "
            "set MUSTER_HOME to a folder on a local disk of this host"
        ) from None
