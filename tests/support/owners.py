"""A server of several owners, which runs as root, for the tests of their separation."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from muster.caller import Caller
from muster.control.launcher import Launcher
from muster.engines.base import NodeCommand, Stdio
from muster.engines.local import namespaces
from muster.plan.model import PrincipalPlan
from muster.service.backend import Backend
from muster.service.embedded import EmbeddedAPI
from muster.storage.home import Home
from muster.storage.owners import account_of
from muster.submission import Submission
from support.api_runs import end_all
from support.faults import until
from support.launchers import spawn

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or bool(namespaces.probe()),
    reason="owners are kept apart by root, with namespaces",
)


class Server:
    """The use cases of a server, each caller with a Unix account."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.backend = Backend(home)
        self._apis: dict[str, EmbeddedAPI] = {}
        # what a server has: its own port, here of the loopback interface only, and sockets
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.word = "word-of-the-server"
        Thread(target=self._serve, daemon=True).start()
        self.abstract = f"muster-server-{os.getpid()}"
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract.bind(f"\0{self.abstract}")
        self._abstract.listen()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(self.word.encode())

    def api(self, name: str) -> EmbeddedAPI:
        """The API of an owner."""
        if name not in self._apis:
            environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
            account = account_of(self.home, name)
            principal = PrincipalPlan("tenancy", "compartment", "muster.invalid")
            submission = Submission(
                environ, sys.executable, Path("/"), account=account, principal=principal
            )
            caller = Caller(name, name)
            api = EmbeddedAPI(caller=caller, submission=submission, backend=self.backend)
            self._apis[name] = api
        return self._apis[name]

    def recover(self) -> None:
        """Look for runs without a supervisor now."""
        self.backend.recovered_at = None
        for api in self._apis.values():
            api.recover()

    def close(self) -> None:
        """End all runs."""
        self.recover()
        for api in self._apis.values():
            end_all(api)
        self.backend.close()
        self._listener.close()
        self._abstract.close()


@contextlib.contextmanager
def open_home() -> Iterator[Home]:
    """A MUSTER_HOME that accounts can reach, as they can reach Python and Muster."""
    root = Path(tempfile.mkdtemp(prefix="muster-owners-"))
    root.chmod(0o711)
    home = Home(root / "home")
    try:
        with reachable(sys.prefix, sys.base_prefix, str(Path(namespaces.__file__).parents[2])):
            home.prepare()
            yield home
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """A server; all its runs are ended afterwards."""
    with open_home() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_HOME", str(home.root))
        patch.setattr(Launcher, "spawn", spawn)  # not in the namespace of other tests
        made = Server(home)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def reachable(*paths: str) -> Iterator[None]:
    """Make folders reachable for every user, in a mount namespace that this thread and its children
    stay in: the interpreter of the tests may be below /root."""
    closed: dict[str, list[str]] = {}
    for path in paths:
        if top := _closed_above(path):
            closed.setdefault(top, []).append(path)
    if not closed:
        yield
        return
    namespaces.unshare(namespaces.CLONE_NEWNS)
    try:
        namespaces.mount("none", "/", None, namespaces.MS_REC | namespaces.MS_PRIVATE)
        for top, below in closed.items():
            held = [(path, os.open(path, os.O_PATH)) for path in dict.fromkeys(below)]
            namespaces.mount("tmpfs", top, "tmpfs", 0, "mode=755")
            for path, descriptor in held:
                os.makedirs(path, exist_ok=True)
                namespaces.bind(f"/proc/self/fd/{descriptor}", path)
                os.close(descriptor)
        yield
    finally:
        for top in closed:
            namespaces.unmount(top)


def _closed_above(path: str) -> str:
    """The first folder above a path that other users cannot pass through; "" if there is none."""
    folders = [*reversed(Path(path).parents), Path(path)]
    return next((str(one) for one in folders if not one.stat().st_mode & 0o001), "")


def execute(api: EmbeddedAPI, run_id: str, *argv: str, rank: int = 0) -> tuple[int, str]:
    """Run a command in a node. Its exit code and output."""
    with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as nothing:
        stdio = Stdio(nothing, output, output)
        code = api.node_access.execute(run_id, rank, NodeCommand(argv), stdio).wait()
        output.seek(0)
        return code, output.read().decode()


def wait_until_ready(api: EmbeddedAPI, run_id: str) -> None:
    """Wait until all nodes of a run are ready."""
    until(lambda: all(node.state == "READY" for node in api.nodes(run_id)), "they are ready", 60)
