"""What containers mount that is made once on this machine: the node program, and a Python."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """A folder that the users of all images can read. It is made unless it is there, and never a
    part of it: make fills another one, which takes its name. Raises OSError, as `make`."""
    if folder.is_dir():
        return folder
    part = folder.with_name(f".{folder.name}-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        make(part)
        _make_readable(part)
        part.rename(folder)
    except OSError:
        if not folder.is_dir():  # no other process was faster
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _make_readable(folder: Path) -> None:
    """Whatever the umask was. What its owner may execute, all may."""
    for here, _, files in os.walk(folder):
        os.chmod(here, 0o755)
        for name in files:
            path = os.path.join(here, name)
            os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)
