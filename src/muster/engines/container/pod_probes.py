"""Tries a startup probe of another container of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from muster.engines.container.api import CannotReach, Daemon, Refused

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


def succeeds(daemon: Daemon, made: str, node: tuple[str, str], probe: Mapping[str, Any]) -> bool:
    """Whether a container is up. node: the container of the node, and its Python, which tries what
    needs a program. probe: the fields of `node.launch_message.Probe`. Raises CannotReach."""
    timeout = probe["timeout"]
    if probe["command"] is not None:
        return _run(daemon, made, probe["command"], timeout)
    if probe["file"] is not None:
        return _run(daemon, made, ["test", "-e", probe["file"]], timeout)
    container, python = node
    words = [python, "-c", _CONNECT, str(probe["port"]), probe["http"] or "", str(timeout)]
    return _run(daemon, container, words, timeout + 1)


def _run(daemon: Daemon, made: str, argv: Sequence[str], timeout: float) -> bool:
    """Whether a command in a container exits with 0 in time."""
    try:
        return daemon.exit_code(made, argv, timeout) == 0
    except (CannotReach, Refused):  # it takes too long, or the container has ended
        return False
