"""Checks whether a host can run its node: `python -m muster.node.host_checks CHECKS`.

CHECKS is a JSON object:

* `gpus`: how many have to be there and answer.
* `bandwidth`: bytes per second; `own`, `next`: the address and port of this node, and of the node
  after it; `names`: of the nodes before and after it; `alone`: whether there are none.
* `command`: what has to succeed then.

What is wrong is written to standard error, and the exit code is 1.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Mapping, Sequence

from muster.node.machine import gpu_numbers

#: Seconds for which data is sent, and until a neighbor that does not take part is given up: it runs
#: its program already, or its own checks have failed.
_SEND_TIME, _NEIGHBOR_TIMEOUT = 0.5, 15.0
#: Seconds between two attempts to connect, and for one; and for nvidia-smi.
_PAUSE, _CONNECT_TIMEOUT, _SMI_TIMEOUT = 0.1, 3.0, 30.0
_CHUNK = 1 << 20
_HELLO = b"muster bandwidth\n"


def gpu_problem(needed: int) -> str:
    """Why not all GPUs can be used; "" if they can, or none is needed."""
    if not needed:
        return ""
    found = len(gpu_numbers())
    if found < needed:
        return "%d of %d GPUs are visible" % (found, needed)
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=_SMI_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return "nvidia-smi does not answer"
    except OSError as error:
        return "nvidia-smi cannot be started: %s" % error.strerror
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        return "nvidia-smi: %s" % (lines[-1] if lines else "exit code %d" % done.returncode)
    return ""


class Neighbors:
    """Measures the bandwidth to the node after this one, and from the one before it, both of which
    do the same meanwhile."""

    def __init__(self, checks: Mapping[str, Any]) -> None:
        self._least = float(checks["bandwidth"])
        self._own, self._next = checks["own"], checks["next"]
        self._before, self._after = checks["names"]
        #: Neighbor -> bytes per second.
        self._measured: dict[str, float] = {}
        self._lock = threading.Lock()

    def problem(self) -> str:
        """Why the bandwidth is too low; "" if it is not, or cannot be measured: then neither
        neighbor takes part."""
        deadline = time.monotonic() + _NEIGHBOR_TIMEOUT
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((self._own[0], int(self._own[1])))
            server.listen(8)
            threads = [
                threading.Thread(target=self._receive, args=(server, deadline), daemon=True),
                threading.Thread(target=self._send, args=(deadline,), daemon=True),
            ]
            for one in threads:
                one.start()
            for one in threads:
                one.join(max(0.0, deadline + 4 * _SEND_TIME - time.monotonic()))
        with self._lock:
            measured = dict(self._measured)
        if not measured or max(measured.values()) >= self._least:
            return ""
        texts = ["%s/s %s" % (_size(rate), way) for way, rate in sorted(measured.items())]
        return "the bandwidth is %s: less than %s/s" % (" and ".join(texts), _size(self._least))

    def _note(self, way: str, rate: float) -> None:
        with self._lock:
            self._measured[way] = rate

    def _receive(self, server: socket.socket, deadline: float) -> None:
        """Receive what the node before this one sends, and tell it how fast that was."""
        while time.monotonic() < deadline:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(_CONNECT_TIMEOUT)
                    rate = _rate_of(connection)
                    if rate is None:
                        continue
                    self._note("from %s" % self._before, rate)
                    connection.sendall(b"%.0f\n" % rate)
                    return
            except OSError:
                continue

    def _send(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            try:
                rate = _send(self._next[0], int(self._next[1]))
            except (OSError, ValueError):
                time.sleep(_PAUSE)
                continue
            self._note("to %s" % self._after, rate)
            return


def _rate_of(connection: socket.socket) -> float | None:
    """Bytes per second of what arrives until its end; None if something else has connected. Raises
    OSError."""
    hello = b""
    while len(hello) < len(_HELLO):
        part = connection.recv(len(_HELLO) - len(hello))
        if not part:
            return None
        hello += part
    if hello != _HELLO:
        return None
    buffer, size, start = memoryview(bytearray(_CHUNK)), 0, time.monotonic()
    while count := connection.recv_into(buffer):
        size += count
    return size / max(time.monotonic() - start, 1e-6)


def _send(address: str, port: int) -> float:
    """Send for a while. Returns the bytes per second that have arrived, as the other end says.
    Raises OSError, ValueError."""
    with socket.create_connection((address, port), _CONNECT_TIMEOUT) as connection:
        connection.sendall(_HELLO)
        data, end = bytes(_CHUNK), time.monotonic() + _SEND_TIME
        while time.monotonic() < end:
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while not answer.endswith(b"\n"):
            part = connection.recv(64)
            if not part:
                raise OSError("it has closed the connection")
            answer += part
    return float(answer)


def _size(rate: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if rate < 1024:
            return "%.3g %s" % (rate, unit)
        rate /= 1024
    return "%.3g GiB" % rate


def command_problem(command: Sequence[str]) -> str:
    """Why a command has not succeeded; "" if it has. What it writes is this process's output."""
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as error:
        return "%s: %s" % (command[0], error.strerror)
    return "" if code == 0 else "%s has failed with exit code %d" % (command[0], code)


def main(words: Sequence[str]) -> int:
    """Returns the exit code. The first check that is not passed ends them."""
    checks = json.loads(words[0])
    problem = gpu_problem(int(checks.get("gpus", 0)))
    if not problem and "bandwidth" in checks and not checks["alone"]:
        problem = Neighbors(checks).problem()
    if problem or "command" not in checks:
        return _tell(problem)
    before = _written()
    problem = command_problem(checks["command"])
    # it knows best what is wrong
    return 1 if problem and _written() > before else _tell(problem)


def _tell(problem: str) -> int:
    if problem:
        sys.stderr.write("%s\n" % problem)
    return 1 if problem else 0


def _written() -> int:
    """The size of standard error, which is a file of the node."""
    return os.fstat(2).st_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
