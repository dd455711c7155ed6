"""Removing what programs leave behind, however they left it."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Any

#: What something is mounted on stays, and what holds it.
_IN_USE = (errno.EBUSY, errno.ENOTEMPTY)


def remove(path: str) -> None:
    """Remove a folder, less what is a mount point for us."""
    shutil.rmtree(path, onerror=_open_up)


def empty(folder: str) -> None:
    """Remove what is in a folder, less what is a mount point for us."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            remove(entry.path)
        else:
            os.unlink(entry.path)


def _open_up(_call: Any, path: str, error: Any) -> None:
    """Remove what is in a folder that was made read-only, as some caches are."""
    trouble = error[1]
    if isinstance(trouble, FileNotFoundError):
        return  # removed by us, further down
    if isinstance(trouble, OSError) and trouble.errno in _IN_USE:
        return
    if not isinstance(trouble, PermissionError):
        raise trouble
    os.chmod(os.path.dirname(path), 0o700)
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
        remove(path)
    else:
        os.unlink(path)
