"""What tests of several rooms share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from muster.client.client import Client

# how long examples take to make and to try says how busy the machine is, and nothing else
settings.register_profile("muster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("muster")

# where nodes find the programs of this environment (mpiexec, say), whether it is activated or not
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

#: Seconds for a test that is marked slow; for the others see `timeout` in pyproject.toml.
SLOW_TIMEOUT = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Heavy tests have a time limit of their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT))


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the person's own runs, or another test's."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("MUSTER_HOME", str(home))
    monkeypatch.delenv("MUSTER_ISOLATION", raising=False)
    return home


@pytest.fixture
def client(own_home: Path) -> Iterator[Client]:
    """A client of the test's own MUSTER_HOME, and nothing left of its runs afterwards."""
    client = Client(own_home)
    yield client
    for run in client.runs():
        if not run.done:
            run.cancel("the test is over").wait(60)
    client.service.close()


@pytest.fixture
def alive() -> Callable[[str], list[str]]:
    """Processes, zombies aside, whose command line or environment holds a text."""

    def look(text: str) -> list[str]:
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                data = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue  # it ended while we looked
            if state != "Z" and text.encode() in data:
                found.append(folder.name)
        return found

    return look
