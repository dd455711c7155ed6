"""`engine: servers`: each node has a server on this machine, in a folder of its own.

What engines share whose nodes are elsewhere, with the smallest infrastructure that there is. As on
other machines, Muster is not installed there: the node program is unpacked into a folder, and
started with an environment and a Python of the host.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.engines.base import Capabilities, RunContext
from muster.engines.loop import RunLoop
from muster.engines.node_program import node_program
from muster.engines.remote import plan_checks
from muster.engines.remote.engine import RemoteEngine
from muster.engines.remote.hosts import Host, Hosts, HostsOwner
from muster.errors import Problem
from muster.frameworks.base import Network
from muster.node.connection import Pipes
from muster.plan.model import RunPlan


class Servers(RemoteEngine):
    name = "servers"
    capabilities = Capabilities(
        in_place=True,
        replace_node=True,
        exec=True,
        forward=True,
        stacks=True,
        counters=True,
        suspend=True,
        shared_files=True,
        detached=True,
        mounts=True,
        arrays=True,
        principals=True,
    )

    def addresses(self, network: Network, nodes: int) -> Sequence[str]:
        return ["127.0.0.1"] * nodes

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        return plan_checks.problems(self.name, plan)

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> Hosts:
        return Folders(Machine.at(context.home.root / "host"), context, loop, owner)


class ShapedServers(Servers):
    """As a machine of a cloud: its nodes have a shape, which is the machine's."""

    name = "shaped"
    capabilities = replace(Servers.capabilities, limits=True)


class Machine:
    """What stands for another machine: the node program, a Python without Muster, variables."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "program"
        #: The code that its node servers share.
        self.archives = folder / "code"
        self.python = folder / "python" / "bin" / "python"
        # the programs of this environment, such as mpiexec, stand for those of the machine
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", os.defpath])
        self.environ = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", "OF_HOST": "yes"}
        # where packages with libraries of their own put them
        libraries = dict.fromkeys(str(Path(site).parents[1]) for site in _site_packages())
        self.environ["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)

    @classmethod
    def at(cls, folder: Path) -> Machine:
        """The one in a folder, which is made unless it exists."""
        made = cls(folder)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            with zipfile.ZipFile(io.BytesIO(node_program())) as archive:
                archive.extractall(made.program)
            made._make_python()
        return made

    def _make_python(self) -> None:
        """A virtual environment that finds the packages of this one, but not Muster."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = self.python.parents[1] / "lib" / version / "site-packages"
        site.mkdir(parents=True)
        self.python.parent.mkdir()
        base = Path(sys.executable).resolve()
        self.python.symlink_to(base)
        (self.python.parents[1] / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
        # the .pth files there, which lead to Muster, are not read
        (site / "host.pth").write_text("".join(f"{path}\n" for path in _site_packages()))


def _site_packages() -> list[str]:
    return [path for path in sys.path if path.endswith("site-packages")]


#: A file in MUSTER_HOME: while it exists, no server can be dialed.
CUT = "cut"


class Folders:
    """Each node has a folder of the run as its host."""

    #: See `Host`.
    ends_with_slot = False

    def __init__(
        self, machine: Machine, context: RunContext, loop: RunLoop, owner: HostsOwner
    ) -> None:
        self._machine = machine
        self._folder = context.home.run_dir(context.plan.run_id).path / "hosts"
        self._over = context.home.root / "over.json"
        self._cut = context.home.root / CUT
        self._run_id = context.plan.run_id
        self._loop, self._owner = loop, owner
        self._allocated = set[int]()

    def allocate(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._loop.post(partial(self._place, rank))
        self._allocated.update(ranks)

    def allocate_parts(self, parts: Sequence[Sequence[int]]) -> None:
        self.allocate([slot for part in parts for slot in part])

    def _place(self, rank: int) -> None:
        dial = partial(self._dial, rank)
        host = Host(dial, socket.gethostname(), ends_with_slot=self.ends_with_slot)
        self._owner.placed(rank, host)

    def _dial(self, rank: int) -> Pipes:
        if self._cut.exists():
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        folder = self._folder / str(rank)
        archives = str(self._machine.archives)
        settings = {"run_id": self._run_id, "rank": rank, "archives": archives}
        over = json.loads(self._over.read_text()) if self._over.exists() else {}
        return Bridge(self._machine, folder, settings, over)

    def place_ended(self) -> None:
        names = [one.name for one in self._folder.glob("*")]  # `volumes` is none of a node
        ended = [int(name) for name in names if name.isdigit()]
        for rank in set(ended) - self._allocated:
            self._place(rank)

    def give_up(self, rank: int) -> None:
        pass

    def close(self) -> None:
        pass


def have_empty(home: Path, folder: Path, options: str = "mode=755") -> None:
    """Have servers that start from now on see an empty file system at a folder, which is created.
    options: those of the tmpfs. Skips the test if that is not possible."""
    argv = [*_OWN_MOUNTS, "mount", "-t", "tmpfs", "none", "/tmp"]
    if shutil.which("unshare") is None or subprocess.run(argv, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    folder.mkdir(parents=True, exist_ok=True)
    path = home / "over.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, str(folder): options}))


_OWN_MOUNTS = ["unshare", *([] if os.getuid() == 0 else ["--map-root-user"]), "--mount"]


class Bridge(Pipes):
    """The bridge to a node server, as ssh starts it. over: see `have_empty`."""

    def __init__(
        self,
        machine: Machine,
        folder: Path,
        settings: Mapping[str, object],
        over: Mapping[str, str],
    ) -> None:
        argv = [str(machine.python), "-u", str(machine.program), "open", str(folder)]
        if over:
            made = [shlex.join(["mount", "-t", "tmpfs", "-o", over[at], "none", at]) for at in over]
            argv = [*_OWN_MOUNTS, "sh", "-c", f'{" && ".join(made)} && exec "$@"', "sh", *argv]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, env=machine.environ, cwd="/", start_new_session=True
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        super().__init__(
            os.dup(self._process.stdout.fileno()), os.dup(self._process.stdin.fileno())
        )
        self._process.stdin.close()
        self._process.stdout.close()
        self.send(json.dumps(settings).encode() + b"\n")

    def close(self) -> None:
        super().close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
