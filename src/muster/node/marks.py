"""What a life of a node leaves for others to read, and must not read of the one before it."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Mapping

from muster.node import error_file
from muster.node.files import open_own


def forget_former_life(launch: Mapping[str, Any]) -> None:
    """Remove what an earlier life has left that would be taken for a word of this one."""
    for process in launch["processes"]:
        if "error_file" in process:
            error_file.forget(process["error_file"])
    mark = launch["probe"] and launch["probe"]["file"]
    own = os.path.realpath(launch["folder"]) + os.sep
    # a mark elsewhere may be somebody else's: one node may wait for what another has done
    if mark and os.path.realpath(mark).startswith(own):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(mark)


def note_begun(folder: str, incarnation: int) -> None:
    """Say that from here on the program may have run, to whoever takes the run over.

    A line in one write: who finds less than that knows that nothing was started after it.
    """
    flags = os.O_WRONLY | os.O_TRUNC
    descriptor = open_own(os.path.join(folder, "begun"), flags, 0o600)
    try:
        os.write(descriptor, b"%d\n" % incarnation)
    finally:
        os.close(descriptor)
