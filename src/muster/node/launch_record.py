"""What an agent has launched, for processes that enter its node later.

A process that enters needs the environment and the working directory of the program. The kernel's
copy in /proc/PID/environ does not do: programs overwrite it with their title. The agent keeps the
record in memory, in a file without a name that only its owner and root can open, through
/proc/AGENT/fd: secrets in the environment are not written to a disk.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Dict, List, NamedTuple

from muster.node.files import write_all
from muster.node.launch_message import LaunchMessage

_NAME = "muster-launch"


class LaunchRecord(NamedTuple):
    """How the program of a node was launched."""

    incarnation: int
    #: Where its processes started.
    cwd: str
    #: All variables of each process, by local rank.
    environments: List[Dict[str, str]]


def publish(launch: LaunchMessage) -> int | None:
    """Publish the record until the returned descriptor is closed; None where the system has no
    files in memory (not Linux)."""
    if not hasattr(os, "memfd_create"):
        return None
    own = [process.env for process in launch.processes]
    try:
        descriptor = os.memfd_create(_NAME)
    except OSError:  # a sandbox forbids it; nothing else needs the record
        return None
    data = json.dumps([launch.incarnation, launch.cwd, launch.env, own]).encode()
    write_all(descriptor, data)
    return descriptor


def read(agent: int) -> LaunchRecord | None:
    """The record of the agent with this pid; None if it has launched nothing. Raises OSError if
    this user may not look into the process."""
    folder = "/proc/%d/fd" % agent
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(path).startswith("/memfd:" + _NAME):
                with open(path) as file:
                    incarnation, cwd, shared, own = json.load(file)
                return LaunchRecord(incarnation, cwd, [{**shared, **env} for env in own])
    return None
