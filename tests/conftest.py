"""Fixtures for the tests of several packages."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from muster.client import api
from muster.client.client import Client
from muster.control.launcher import Launcher
from muster.service.backend import Backend
from muster.storage.home import Home
from support.embedded import variables_of
from support.launchers import SharedLauncher, spawn
from support.plugins import install_servers, plug_in
from support.postgres import end_shared_server

# the duration of Hypothesis's examples depends on the load of the machine
settings.register_profile(
    "muster", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
#: Of `make test-all`.
settings.register_profile("thorough", settings.get_profile("muster"), max_examples=100)
settings.load_profile("muster")

# nodes find the programs of this environment (for example mpiexec) even if it is not activated
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

#: Seconds for a test that is marked slow; for the others see `timeout` in pyproject.toml.
SLOW_TIMEOUT = 900


#: Of the tests' homes.
_NUMBERS = count()

#: The folder with tests of the whole program, some of which take long.
ROOT = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests a longer time limit; start the long tests first, so that none is left over
    when all other workers have finished; skip what there is not with --over-http."""
    items.sort(key=lambda item: item.path.parent != ROOT)
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))
        embedded = item.get_closest_marker("embedded")
        if embedded and config.getoption("--over-http"):
            item.add_marker(pytest.mark.skip(reason=embedded.args[0]))


@pytest.fixture(scope="session", autouse=True)
def _shared_launchers() -> Iterator[None]:
    """Clients of this process use one launcher of supervisors, whatever the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launcher, "spawn", SharedLauncher.of_environment)
        yield
    SharedLauncher.end_all()


@pytest.fixture(scope="session", autouse=True)
def _shared_postgres() -> Iterator[None]:
    """Tests of this process use one PostgreSQL server, if they need one."""
    yield
    end_shared_server()


@pytest.fixture
def own_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client of the test spawns a launcher, as in a program."""
    monkeypatch.setattr(Launcher, "spawn", spawn)


@pytest.fixture(autouse=True)
def own_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """No test sees the user's runs or those of another test."""
    # `mktemp` reads the folder to number a new one, and there are thousands
    home = tmp_path_factory.getbasetemp() / "home" / str(next(_NUMBERS))
    home.mkdir(0o700, parents=True)
    monkeypatch.setenv("MUSTER_HOME", str(home))
    monkeypatch.delenv("MUSTER_ISOLATION", raising=False)
    yield home
    while api._clients:  # of `muster.run` and the other functions
        _, client = api._clients.popitem()
        client.close()
    # the processes of later tests would not end, and neither would a test that takes too long
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    assert not blocked, f"the test has left signals blocked: {blocked}"
    # 5 MB each, and thousands of tests have a home
    shutil.rmtree(home / "reserve", ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--over-http",
        action="store_true",
        help="clients and commands reach Muster through a server, one for each test",
    )


@pytest.fixture(autouse=True)
def _server(
    request: pytest.FixtureRequest, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """With --over-http, a server for the test's MUSTER_HOME, which is used instead of it."""
    if not request.config.getoption("--over-http"):
        yield
        return
    from support.server_thread import running_server

    with running_server(Backend(Home(own_home))) as server:
        for name, text in variables_of(server.address()).items():
            monkeypatch.setenv(name, text)
        yield


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """A random generator with a new seed in each run. Pytest shows the output of a failed test, so
    also how to repeat it; `MUSTER_SEED=N` sets the seed of all tests."""
    seed = os.environ.get("MUSTER_SEED") or str(random.SystemRandom().randrange(10**6))
    print(f"repeat with MUSTER_SEED={seed}")
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture
def client(own_home: Path, _server: None) -> Iterator[Client]:
    """A client of the test's own MUSTER_HOME; all its runs are ended afterwards."""
    client = Client(None if "MUSTER_URL" in os.environ else own_home)
    yield client
    for run in client.runs():
        if not run.done:
            run.cancel("the test is over").wait(240)
    client.close()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an engine that reaches its nodes as if they were on other machines."""
    install_servers(tmp_path / "site")
    plug_in(monkeypatch, ROOT, tmp_path / "site")
    return "servers"


@pytest.fixture(params=["local", "servers"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of an engine, for commands that enter nodes."""
    name: str = request.param
    return request.getfixturevalue("servers") if name == "servers" else name


@pytest.fixture
def alive() -> Callable[[str], list[str]]:
    """Processes, zombies aside, whose command line or environment contains a text."""

    def look(text: str) -> list[str]:
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                data = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue  # it ended meanwhile
            if state != "Z" and text.encode() in data:
                found.append(folder.name)
        return found

    return look
