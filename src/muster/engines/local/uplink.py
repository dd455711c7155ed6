"""The way out of a run's own network: pasta or slirp4netns, whichever is there.

Either is a program that carries what reaches its interface in the run's namespace through sockets
of its own. So a run may reach out with no rule, route or setting of the machine's changed, with
root and without; and as it is a child of the run's supervisor, it goes when the run goes.
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

from muster.engines.local import linux
from muster.engines.local.netlink import has_default_route
from muster.errors import EngineError

INTERFACE = "up0"
#: slirp4netns fixes all but the first three numbers of these; pasta takes what it is given.
_NETWORK = "10.77.128"
_OWN = f"{_NETWORK}.100"
#: Reaches what listens on the machine's 127.0.0.1.
MACHINE = f"{_NETWORK}.2"
#: Answers as the machine's own name server does.
RESOLVER = f"{_NETWORK}.3"

_NONE = "neither pasta nor slirp4netns is installed"
_DEVICE = "/dev/net/tun"
_STARTING = 30.0  # seconds
#: A program that has ended is started again, but one that does nothing else is not, for ever.
_RESTARTS = 20


class Program(Struct, frozen=True):
    """What carries connections out. arguments: what follows its name, but for the namespace."""

    path: str
    arguments: tuple[str, ...]

    def command(self, namespace: str) -> list[str]:
        """How to start it in the foreground. namespace: a file that names the network namespace."""
        place = [namespace, INTERFACE] if self.name == "slirp4netns" else ["--netns", namespace]
        return [self.path, *self.arguments, *place]

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


_SLIRP4NETNS = ("--configure", "--mtu=65520", f"--cidr={_NETWORK}.0/24", "--netns-type=path")
_CLOSED = ("-t", "none", "-u", "none", "-T", "none", "-U", "none")
_UNNEEDED = ("--no-dhcp", "--no-dhcpv6", "--no-ndp", "--no-ra", "--no-netns-quit")
_PLACES = ("-a", _OWN, "-n", "24", "-g", MACHINE, "--dns-forward", RESOLVER, "-I", INTERFACE)
_MODE = ("-q", "-f", "-4", "--config-net", "--runas", "0")
_PASTA = (*_MODE, *_PLACES, *_CLOSED, *_UNNEEDED)
_ARGUMENTS = {"pasta": _PASTA, "slirp4netns": _SLIRP4NETNS}


def find_program() -> Program | None:
    """The one to use here; None if none is installed."""
    for name, arguments in _ARGUMENTS.items():
        found = shutil.which(name)
        if found is not None:
            return Program(found, arguments)
    return None


def missing() -> tuple[str, str] | None:
    """What of a way out this machine does not have, and what to do about it."""
    if find_program() is None:
        return _NONE, "apt-get install passt"
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        advice = "as root, modprobe tun; for a container, start it with --device /dev/net/tun"
        return f"there is no {_DEVICE}", advice
    except OSError as error:
        return f"{_DEVICE} cannot be opened: {error.strerror}", f"as root, chmod 0666 {_DEVICE}"
    return None


class Uplink:
    """The program of one run, a child of ours.

    namespace: a descriptor of the run's network namespace; routes: a `watch_routes` of it; both
    are ours from now on. place: a path for the namespace, while the program starts.
    """

    def __init__(self, namespace: int, routes: socket.socket, place: Path) -> None:
        self._namespace = namespace
        self._routes = routes
        self._place = place
        self._output = os.memfd_create("output")
        self._pid = 0
        self._ready = False
        self._restarts = 0
        self._failed: EngineError | None = None
        self._deadline = 0.0
        self._start()

    @property
    def starting(self) -> bool:
        """Whether it is not known yet if it will carry connections."""
        return not self._ready and self._failed is None

    def watched(self) -> int | None:
        """The descriptor to wait on while it starts."""
        return self._routes.fileno() if self.starting else None

    def patience(self) -> float | None:
        """Seconds after which `step` wants to be called although nothing happened."""
        return max(0.0, self._deadline - time.monotonic()) if self.starting else None

    def step(self) -> None:
        """See whether it carries connections by now; end it if that took too long."""
        if not self.starting:
            return
        with contextlib.suppress(BlockingIOError):
            while not self._ready:
                self._ready = has_default_route(self._routes.recv(1 << 16))
        if self._ready:
            self._forget_place()
        elif time.monotonic() >= self._deadline:
            self._give_up(f"did nothing for {_STARTING:g} s")

    def check(self) -> None:
        """Raises EngineError if it carries no connections."""
        if self._failed is not None:
            raise self._failed

    def reaped(self, pid: int) -> bool:
        """Whether this child of ours that has ended was the program. If it was up, it is started
        again: whoever killed it may not have meant the run."""
        if pid != self._pid:
            return False
        self._pid = 0
        again, self._ready = self._ready and self._restarts < _RESTARTS, False
        if not again:
            if self._failed is None:
                self._give_up("has ended")
            return True
        self._restarts += 1
        try:
            self._start()
        except (OSError, EngineError) as error:
            self._give_up(f"cannot be started again: {error}")
        return True

    def close(self) -> None:
        """End it."""
        self._forget_place()
        self._kill()
        os.close(self._namespace)
        os.close(self._output)
        self._routes.close()

    def _start(self) -> None:
        program = find_program()
        if program is None:
            raise EngineError(f"no way out of the run's network: {_NONE}")
        self._name = program.name
        _drain(self._routes)
        # by a path, as these programs may neither keep our descriptors nor look into our /proc
        self._place.touch()
        linux.bind(f"/proc/self/fd/{self._namespace}", str(self._place))
        self._pid = os.posix_spawn(
            program.path,
            program.command(str(self._place)),
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
        self._deadline = time.monotonic() + _STARTING

    def _give_up(self, what: str) -> None:
        """Nodes that need nothing from outside need not end for it; none can begin any more."""
        said = os.pread(self._output, 1 << 16, 0).decode(errors="replace").splitlines()
        # without a system log, pasta says of each line that it could not be sent there
        told = [line for line in said if line and not line.startswith("Failed to send")]
        text = f": {told[-1]}" if told else ""
        self._failed = EngineError(f"no way out of the run's network: {self._name} {what}{text}")
        self._kill()
        self._forget_place()
        print(self._failed, file=sys.stderr)  # noqa: T201  into supervisor.log

    def _kill(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _forget_place(self) -> None:
        if self._place.exists():
            linux.unmount(str(self._place))
            self._place.unlink()


def _drain(sock: socket.socket) -> None:
    """Forget what it has heard."""
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.recv(1 << 16)
