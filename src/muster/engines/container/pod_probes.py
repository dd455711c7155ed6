"""Tries a startup probe of another container of a node."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from muster.engines.container.api import CannotReach, Daemon, Refused, TookTooLong

#: Connects to a port, or asks an HTTP server for a page, in the network of the node.
_CONNECT = """\
import http.client, socket, sys
port, path, timeout = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
if path:
    connection = http.client.HTTPConnection("localhost", port, timeout=timeout)
    connection.request("GET", path)
    sys.exit(not 200 <= connection.getresponse().status < 400)
socket.create_connection(("localhost", port), timeout)
"""
#: What is said of a command that exits with 1.
_CODE_1 = "it exited with 1"


def why_down(daemon: Daemon, made: str, node: tuple[str, str], probe: Mapping[str, Any]) -> str:
    """What was tried and why it failed, as a phrase; "" if a container is up. node: the container
    of the node, and its Python, which tries what needs a program. probe: the fields of
    `node.launch_message.Probe`."""
    timeout = probe["timeout"]
    if probe["command"] is not None:
        why = _why_failed(daemon, made, probe["command"], timeout)
        return why and f"command `{shlex.join(probe['command'])}`: {why}"
    if probe["file"] is not None:
        why = _why_failed(daemon, made, ["test", "-e", probe["file"]], timeout)
        return why and f"file {probe['file']}: {'it is not there' if why == _CODE_1 else why}"
    container, python = node
    words = [python, "-c", _CONNECT, str(probe["port"]), probe["http"] or "", str(timeout)]
    why = _why_failed(daemon, container, words, timeout + 1)
    what = f"port {probe['port']}" + (f", page {probe['http']}" if probe["http"] else "")
    return why and f"{what}: {'no answer, or an error' if why == _CODE_1 else why}"


def _why_failed(daemon: Daemon, made: str, argv: Sequence[str], timeout: float) -> str:
    """Why a command in a container did not exit with 0 in time; "" if it did."""
    try:
        code = daemon.exit_code(made, argv, timeout)
    except TookTooLong as error:
        left = "" if _end_command(daemon, made, error.command) else ", and still runs"
        return f"it took longer than {timeout:g} s{left}"
    except (CannotReach, Refused) as error:  # the container may have ended
        return str(error)
    return f"it exited with {code}" if code else ""


def _end_command(daemon: Daemon, made: str, command: str) -> bool:
    """Kill a command that runs in a container: the engine has no call for that. Returns whether it
    has ended."""
    try:
        found = daemon.get("exec", command, "json")
        if not found.get("Running"):
            return True
        first = daemon.get("containers", made, "json")["State"]["Pid"]
        process = os.pidfd_open(int(found["Pid"]))
    except (CannotReach, Refused, KeyError, OSError):
        return False
    try:
        # an engine in another container may number processes otherwise
        space = os.stat(f"/proc/{found['Pid']}/ns/pid")
        if not os.path.samestat(space, os.stat(f"/proc/{first}/ns/pid")):
            return False
        if os.path.samestat(space, os.stat("/proc/self/ns/pid")):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:  # it is that of another user
        return False
    finally:
        os.close(process)
    return True
