"""Python environments with the packages that jobs require, on a node's host.

The node servers of a user share a folder of them. Each is installed once, under a lock:

    KEY/env       the virtual environment
    KEY/about     what is in it (JSON); written last: without it, the environment is incomplete
    KEY.lock      locked shared by node servers and agents, exclusively by who removes it
    KEY.building  locked exclusively by who installs or removes it
    KEY.log       the output of pip
    KEY.failed    why the last installation failed

KEY is a hash of everything that determines the content. A node finds the environment of its job by
a link in its own folder. One that was not used for a while is removed by the next installation
(`node.installation`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import List

from muster.node.files import open_or_replace


class Environments:
    """The environments in a folder, for one of the servers that use it."""

    def __init__(self, place: str) -> None:
        self.place = place
        #: The descriptor that keeps the one of the job in place; agents keep it as well.
        self.held: List[int] = []

    def use(self, key: str, link: str) -> bool:
        """Use an environment, which stays in place while this process runs. link: where programs
        find it. Returns False if it has just been removed. Raises OSError."""
        folder = os.path.join(self.place, key)
        descriptor = open_or_replace(folder + ".lock", os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(os.path.join(folder, "about"))  # the time of last use
        except (BlockingIOError, FileNotFoundError):
            os.close(descriptor)
            return False
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(link)
            os.symlink(os.path.join(folder, "env"), link)
        except OSError:  # such as a full disk
            os.close(descriptor)
            raise
        self.held.append(descriptor)
        return True
