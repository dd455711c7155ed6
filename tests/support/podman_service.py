"""A Podman of the tests' own: a service on a socket, with its own containers, images and networks.

Its images have no programs: containers mount those of this machine (`add_engine`).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from muster.engines import profiles
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.storage.home import Home
from support.faults import until
from support.ssh_hosts import free_port

#: What this machine's root has no right to exceed, as Podman raises limits otherwise.
CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
network_config_dir = "{folder}/networks"
[network]
network_backend = "netavark"
default_subnet_pools = [{{"base" = "10.{net}.0.0/16", "size" = 24}}]
"""
#: Folders of this machine with programs and libraries.
_PROGRAMS = ("/usr", "/lib", "/lib64", "/bin", "/sbin")
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nana:x:1234:1234::/tmp:/bin/sh\n"
#: An image for root, and one for the user with this number.
IMAGE, USERS_IMAGE, USER = "localhost/base:1", "localhost/of-ana:1", 1234


def why_not() -> str:
    """Why Podman cannot be used here; "" if it can."""
    needed = ("podman", "runc", "conmon", "unshare", "nsenter")
    missing = [name for name in needed if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed"
    return "" if os.getuid() == 0 else "these tests run containers as root"


def skip_without_podman() -> None:
    """Skip the test, or fail it where all has to be there."""
    if why := why_not():
        if os.environ.get("REQUIRE_PROGRAMS"):
            pytest.fail(why)
        pytest.skip(why)


class PodmanService:
    """`podman system service`. folder: for all that it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        net = 100 + os.urandom(1)[0] % 100  # above Podman's default network, 10.88.0.0/16
        (folder / "containers.conf").write_text(CONF.format(folder=folder, net=net))
        storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\n'
        (folder / "storage.conf").write_text(f'{storage}runroot = "{folder}/run"\n')
        #: Where tests may have a registry without TLS.
        self.registry = "127.0.0.1", free_port()
        location = '[[registry]]\nlocation = "{}:{}"\ninsecure = true\n'
        (folder / "registries.conf").write_text(location.format(*self.registry))
        self.process: subprocess.Popen[bytes] | None = None
        # its mounts are its own: others compare those of the machine before and after
        private = ["unshare", "--mount", "--propagation=private", "sleep", "infinity"]
        self._mounts = subprocess.Popen(private, stdin=subprocess.DEVNULL)
        until(self._has_own_mounts, "Podman has a mount namespace")
        self.start()
        self.add_image(IMAGE)
        self.add_image(USERS_IMAGE, f"USER {USER}")

    @property
    def socket(self) -> Path:
        return self.folder / "sock"

    @property
    def daemon(self) -> Daemon:
        return Daemon(str(self.socket))

    def argv(self, *words: str) -> list[str]:
        """A command line of Podman for what the service has."""
        own = [f"--root={self.folder}/root", f"--runroot={self.folder}/run"]
        return [*self._enter(), "podman", *own, f"--tmpdir={self.folder}/tmp", *words]

    def _enter(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self._mounts.pid}/ns/mnt", "--"]

    def _has_own_mounts(self) -> bool:
        mine = os.readlink("/proc/self/ns/mnt")
        return os.readlink(f"/proc/{self._mounts.pid}/ns/mnt") != mine

    @property
    def environ(self) -> dict[str, str]:
        conf = str(self.folder / "containers.conf")
        storage = str(self.folder / "storage.conf")
        registries = str(self.folder / "registries.conf")
        return {
            **os.environ,
            "CONTAINERS_CONF": conf,
            "CONTAINERS_STORAGE_CONF": storage,
            "CONTAINERS_REGISTRIES_CONF": registries,
        }

    def podman(self, *words: str) -> str:
        """What a command of Podman prints."""
        argv = self.argv(*words)
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        argv = self.argv("system", "service", "-t", "0", f"unix://{self.socket}")
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._answers, "Podman answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(CannotReach, Refused):
            self.daemon.get("_ping")
            return True
        return False

    def stop(self) -> None:
        """End the service. Its containers keep running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process = None
            self.socket.unlink(missing_ok=True)

    def refuse(self, number: int) -> None:
        """Close so many connections, which clients make to it while it does not run."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.socket))
            listener.listen()
            for _ in range(number):
                listener.accept()[0].close()
        self.socket.unlink()

    def add_image(self, name: str, *changes: str, files: Sequence[str] = ()) -> None:
        """Add an image without programs, or with nothing but these files of this machine. changes:
        lines as of a Dockerfile."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.socket))
        path = f"/v4.0.0/libpod/images/import?reference={name}"
        for change in ("ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", *changes):
            path += f"&changes={quote(change)}"
        content = layer_of(files) if files else layer()
        connection.request("POST", path, content, {"Content-Type": "application/x-tar"})
        response = connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        connection.close()

    # --- what it has

    def containers(self, run_id: str = "") -> list[dict[str, Any]]:
        """All containers, or those of a run."""
        label = f"muster.run={run_id}" if run_id else "muster.run"
        found = self.daemon.get("containers", "json", all="true", filters={"label": [label]})
        return list(found)

    def networks(self) -> list[str]:
        """The names of the networks that runs have made."""
        filters = {"label": ["muster.run"]}
        return [one["Name"] for one in self.daemon.get("networks", filters=filters)]

    def left(self, run_id: str) -> list[str]:
        """The names of the containers and networks of a run that are left."""
        names = [name for one in self.containers(run_id) for name in one["Names"]]
        return names + [name for name in self.networks() if name == f"muster-{run_id}"]

    def remove(self, run_id: str) -> None:
        """Remove all of a run."""
        for one in self.containers(run_id):
            self.podman("rm", "--force", "--depend", "--ignore", "--time=0", one["Id"])
        for name in self.networks():
            if name == f"muster-{run_id}":
                self.podman("network", "rm", "--force", name)

    def close(self) -> None:
        """Remove everything."""
        for one in self.containers():
            self.podman("rm", "--force", "--depend", "--ignore", "--time=0", one["Id"])
        self.stop()
        self._mounts.kill()
        self._mounts.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def layer() -> bytes:
    """The files of an image: folders, and who its users are."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, mode in (("etc", 0o755), ("tmp", 0o1777), ("root", 0o755), ("usr", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry)
        texts = {"passwd": _PASSWD, "group": "root:x:0:\n", "nsswitch.conf": "hosts: files dns\n"}
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"etc/{name}")
            entry.size, entry.mode = len(text), 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path in _PROGRAMS:
            if os.path.islink(path):
                entry = tarfile.TarInfo(path.strip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
                archive.addfile(entry)
    return packed.getvalue()


def layer_of(files: Sequence[str]) -> bytes:
    """The files of an image: these of this machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for path in files:
            archive.add(path, path.lstrip("/"))
    return packed.getvalue()


@cache
def shared_podman() -> PodmanService:
    """One for all tests of this process, which ends with it."""
    import atexit

    service = PodmanService(Path(tempfile.mkdtemp(prefix="podman-")))
    atexit.register(service.close)
    return service


def machine_mounts() -> list[str]:
    """The folders of this machine that its programs, and this Python, need: for `mounts`."""
    own = (sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"))
    folders = [*(path for path in _PROGRAMS if os.path.isdir(path) and not os.path.islink(path))]
    folders += [path for path in own if not path.startswith("/usr/")]
    return [f"{path}:ro" for path in dict.fromkeys(folders)]


def add_engine(
    home: Path, service: PodmanService, name: str = "container", **settings: Any
) -> Path:
    """Write the profile of an engine `container` whose nodes have the programs of this machine, and
    its Python. settings: further ones, or others. Returns its file."""
    given = {
        "socket": str(service.socket),
        "image": IMAGE,
        "python": sys.executable,
        "mounts": machine_mounts(),
        **settings,
    }
    file = profiles.file_of(Home(home), name)
    profiles.write_profile(file, profiles.profile_text(name, "container", given))
    return file


def described(service: PodmanService, run_id: str, slot: int = 0) -> dict[str, Any]:
    """What the service says of the container of a slot."""
    found = service.daemon.get("containers", f"muster-{run_id}-{slot}", "json")
    return dict(json.loads(json.dumps(found)))
