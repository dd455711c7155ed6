"""The uplink of a cluster network: pasta or slirp4netns, whichever is installed.

Both programs create an interface in the run's network namespace and forward its connections through
ordinary sockets. That works as root and as any user, and changes no rule, route or setting of the
machine. The program is a child of the run's supervisor and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

from msgspec import Struct

from muster.engines.local import namespaces
from muster.engines.local.network.netlink import has_default_route
from muster.errors import EngineError
from muster.unix_account import as_root, current

INTERFACE = "up0"
#: slirp4netns prescribes the last number of these addresses; pasta can be given any.
_NETWORK = "10.77.128"
_OWN = f"{_NETWORK}.100"
#: The address at which nodes reach 127.0.0.1 of the machine.
MACHINE = f"{_NETWORK}.2"
#: The address at which nodes reach the machine's name server.
RESOLVER = f"{_NETWORK}.3"

_NONE = "neither pasta nor slirp4netns is installed"
_DEVICE = "/dev/net/tun"
_START_TIMEOUT = 30.0  # seconds
#: How often a program that ends is started again before the uplink fails.
_MAX_RESTARTS = 20


class Program(Struct, frozen=True):
    """An installed program that can serve as an uplink."""

    path: str
    #: Its arguments, without those that name the namespace.
    arguments: tuple[str, ...]

    def command(self, namespace: str, *, closed: bool = False) -> list[str]:
        """The command that runs it in the foreground. namespace: the path of the namespace. closed:
        whether nodes cannot reach what listens on the machine's loopback interface only."""
        slirp = self.name == "slirp4netns"
        place = [namespace, INTERFACE] if slirp else ["--netns", namespace]
        more = ["--disable-host-loopback" if slirp else "--no-map-gw"] if closed else []
        return [self.path, *self.arguments, *more, *place]

    @property
    def name(self) -> str:
        """pasta or slirp4netns."""
        return os.path.basename(self.path)


_SLIRP4NETNS = ("--configure", "--mtu=65520", f"--cidr={_NETWORK}.0/24", "--netns-type=path")
_CLOSED = ("-t", "none", "-u", "none", "-T", "none", "-U", "none")
_UNNEEDED = ("--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra", "--no-netns-quit")
_PLACES = ("-a", _OWN, "-n", "24", "-g", MACHINE, "--dns-forward", RESOLVER, "-I", INTERFACE)
_MODE = ("-q", "-f", "-4", "--config-net", "--runas", "0")
_PASTA = (*_MODE, *_PLACES, *_CLOSED, *_UNNEEDED)
_ARGUMENTS = {"pasta": _PASTA, "slirp4netns": _SLIRP4NETNS}


def find_program() -> Program | None:
    """The installed program to use; None if there is none."""
    for name, arguments in _ARGUMENTS.items():
        found = shutil.which(name)
        if found is not None:
            return Program(found, arguments)
    return None


def unavailable() -> tuple[str, str] | None:
    """Why an uplink does not work on this machine, and what to do; None if it works."""
    if find_program() is None:
        return _NONE, "apt-get install passt"
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        advice = "as root, modprobe tun; for a container, start it with --device /dev/net/tun"
        return f"{_DEVICE} not found", advice
    except OSError as error:
        return f"{_DEVICE} cannot be opened: {error.strerror}", f"as root, chmod 0666 {_DEVICE}"
    return None


class Uplink:
    """The uplink program of one run, a child process.

    namespace: a descriptor of the run's network namespace. routes: a socket from `watch_routes` in
    it. Both are closed by `close`. path: where to mount the namespace while the program starts.
    """

    def __init__(self, namespace: int, routes: socket.socket, path: Path) -> None:
        self._namespace = namespace
        self._routes = routes
        self._path = path
        self._output = os.memfd_create("output")
        self._pid = 0
        self._ready = False
        self._restarts = 0
        self._failed: EngineError | None = None
        self._deadline = 0.0
        self._start()

    @property
    def starting(self) -> bool:
        """Whether it has neither started nor failed yet."""
        return not self._ready and self._failed is None

    def watched(self) -> int | None:
        """The descriptor to poll while it starts; None otherwise."""
        return self._routes.fileno() if self.starting else None

    def timeout(self) -> float | None:
        """Seconds after which to call `step` even if nothing happens; None if not starting."""
        return max(0.0, self._deadline - time.monotonic()) if self.starting else None

    def step(self) -> None:
        """Notice that it has started, or end it if that takes too long."""
        if not self.starting:
            return
        with contextlib.suppress(BlockingIOError):
            while not self._ready:
                self._ready = has_default_route(self._routes.recv(1 << 16))
        if self._ready:
            self._remove_path()
        elif time.monotonic() >= self._deadline:
            self._fail(f"did not start within {_START_TIMEOUT:g} s")

    def check(self) -> None:
        """Raises EngineError if it has failed."""
        if self._failed is not None:
            raise self._failed

    def reaped(self, pid: int) -> bool:
        """Handle the end of a child process. Returns whether it was the uplink.

        An uplink that had started is started again, up to a limit. One that ends while it starts
        has failed.
        """
        if pid != self._pid:
            return False
        self._pid = 0
        restart = self._ready and self._restarts < _MAX_RESTARTS
        self._ready = False
        if not restart:
            if self._failed is None:
                self._fail("has ended")
            return True
        self._restarts += 1
        try:
            self._start()
        except (OSError, EngineError) as error:
            self._fail(f"cannot be started again: {error}")
        return True

    def close(self) -> None:
        """End the program and release the namespace."""
        self._remove_path()
        self._kill()
        os.close(self._namespace)
        os.close(self._output)
        self._routes.close()

    def _start(self) -> None:
        program = find_program()
        if program is None:
            raise EngineError(f"no uplink for the run's network: {_NONE}")
        self._name = program.name
        _drain(self._routes)
        # the programs close inherited descriptors and cannot read our /proc, so they get a path
        self._make_path()
        namespaces.bind(f"/proc/self/fd/{self._namespace}", str(self._path))
        self._pid = os.posix_spawn(
            program.path,
            # others, and the server's database, may listen there
            program.command(str(self._path), closed=current() is not None),
            {"PATH": os.environ.get("PATH", os.defpath)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, self._output, 1),
                (os.POSIX_SPAWN_DUP2, self._output, 2),
            ],
            setpgroup=0,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGINT, signal.SIGTERM),
        )
        self._deadline = time.monotonic() + _START_TIMEOUT

    def _fail(self, what: str) -> None:
        """Record the failure. Running nodes continue, as they may not need the outside; no other
        node starts."""
        output = os.pread(self._output, 1 << 16, 0).decode(errors="replace").splitlines()
        # without a system log, pasta reports that it could not send each line to it
        lines = [line for line in output if line and not line.startswith("Failed to send")]
        text = f": {lines[-1]}" if lines else ""
        self._failed = EngineError(f"no uplink for the run's network: {self._name} {what}{text}")
        self._kill()
        self._remove_path()
        print(self._failed, file=sys.stderr)  # noqa: T201  supervisor.log

    def _kill(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    @as_root()
    def _make_path(self) -> None:
        """Make the file anew: the program enters what it finds there as root."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @as_root()
    def _remove_path(self) -> None:
        if self._path.exists():
            namespaces.unmount(str(self._path))
            self._path.unlink()


def _drain(sock: socket.socket) -> None:
    """Discard the messages that a socket has received."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(1 << 16)
