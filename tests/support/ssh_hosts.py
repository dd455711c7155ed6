"""A real sshd of this user on loopback, and engines `hosts` whose machines it is."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from muster.engines import profiles
from muster.storage.home import Home
from support.faults import until

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or ""


def can_use_ssh() -> bool:
    """Whether OpenSSH is installed."""
    return bool(SSHD and shutil.which("ssh") and shutil.which("ssh-keygen"))


needs_sshd = pytest.mark.skipif(not can_use_ssh(), reason="OpenSSH is not installed")

CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 1000
MaxSessions 1000
"""
#: Keeps the node program apart from that of the person who runs the tests, and that person's shell
#: from being set up at each login: this takes long, and may wait for locks that killed logins left.
CACHE = "SetEnv XDG_CACHE_HOME={folder}/cache HOME={folder}\n"
#: Each address of this machine's loopback is a machine of its own, for ssh.
CLIENT_CONFIG = """\
Host *
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  Port {port}
"""


class Sshd:
    """A running sshd. folder: with its keys and configuration. cache: see `CACHE`."""

    def __init__(self, folder: Path, *settings: str, cache: str = CACHE) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        for name in ("host_key", "user_key"):
            if not (folder / name).exists():
                make_key(folder / name)
        (folder / "sshd_config").write_text(
            "\n".join([(CONFIG + cache).format(folder=folder), *settings])
        )
        config = CLIENT_CONFIG.format(folder=folder, port=self.port)
        (folder / "config").write_text(config)
        self.trust((folder / "host_key.pub").read_text())
        self.process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []  # processes of connections that outlive it
        self.start()

    @property
    def config(self) -> Path:
        """A configuration of ssh with which its key is known, and the user's accepted."""
        return self.folder / "config"

    def trust(self, key: str) -> None:
        """Have clients know a key as that of the machine, and no other."""
        (self.folder / "known_hosts").write_text(f"* {' '.join(key.split()[:2])}\n")

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        if os.getuid() == 0:
            os.makedirs("/run/sshd", 0o755, exist_ok=True)
        # the foreground, so that it ends with its process
        argv = [SSHD, "-D", "-p", str(self.port), "-f", str(self.folder / "sshd_config")]
        # all loopback addresses, each of which is a machine for clients
        argv += ["-E", str(self.folder / "log"), "-o", "ListenAddress=0.0.0.0"]
        self.process = subprocess.Popen(argv)
        until(self._answers, "sshd accepts connections")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 5):
            return True
        return False

    def stop(self) -> None:
        """Accept no more connections. Those that are open stay."""
        if self.process is not None:
            self._sessions = [*self._sessions, *_descendants(self.process.pid)]
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def end_connections(self) -> None:
        """End those that were open when it was stopped, as if the machine had gone."""
        for pid in self._sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._sessions = []


def _descendants(pid: int) -> list[int]:
    """The sshd processes below a process."""
    found = []
    for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        if Path(f"/proc/{child}/comm").read_text().startswith("sshd"):
            found += [child, *_descendants(child)]
    return found


def make_key(path: Path) -> None:
    """Make a key pair without a passphrase."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def free_port() -> int:
    """A port that is free now. It is none that the kernel gives to connections, or Muster to
    programs (`node.free_ports`), which would take it before a program listens there."""
    while True:
        port = random.SystemRandom().randrange(12_000, 20_000)
        with contextlib.suppress(OSError), socket.create_server(("0.0.0.0", port)):
            return port


@cache
def shared_sshd() -> Sshd:
    """One for all tests of this process, which ends with it."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="sshd-"))
    sshd = Sshd(folder)

    def end() -> None:
        sshd.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return sshd


def add_engine(
    home: Path, sshd: Sshd, name: str = "hosts", hosts: Sequence[Any] = ("127.0.0.1",), **more: Any
) -> Path:
    """Write the profile of an engine `hosts`. more: further settings. Returns its file.

    Its nodes have their files in `HOME/hosts`, and its machines a queue of their own.
    """
    settings = {
        "hosts": list(hosts),
        "python": sys.executable,
        "ssh_config": str(sshd.config),
        "folder": str(home / "hosts"),
        "queue": str(home / "queue"),
        **more,
    }
    return write_profile(home, name, settings)


def write_profile(home: Path, name: str, settings: Mapping[str, Any]) -> Path:
    """Write the profile of an engine `hosts`. Returns its file."""
    file = profiles.file_of(Home(home), name)
    profiles.write_profile(file, profiles.profile_text(name, "hosts", settings))
    return file
