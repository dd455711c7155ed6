"""What the machines of an engine are."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.engines.findings import Finding
from muster.engines.hosts.engine import HostsEngine
from muster.engines.hosts.examine import describe, without_repeats
from muster.engines.hosts.profile import Machine
from muster.engines.profiles import read_profile
from muster.node.machine import MachineFacts
from muster.storage.home import Home
from support.ssh_hosts import add_engine, needs_sshd, shared_sshd


def test_a_machine_that_may_be_listed_twice() -> None:
    works, fails = Finding("a", True, "fine"), Finding("b", False, "clock ahead", "set it")
    found = without_repeats([(works, "k"), (fails, "k"), (works, "other"), (fails, "")])
    advice = "if it is the same machine as a, list it once, and set `slots`"
    again = Finding("b", False, "clock ahead, kernel of a", f"set it; {advice}")
    assert found == [works, again, works, fails]


FACTS = MachineFacts("10.0.0.7", 8, 64 << 30, [0, 1], "3.11.2", 1000.0, ["cpu", "memory"])


@pytest.mark.parametrize(
    ("machine", "change", "says", "advice"),
    [
        (Machine("a"), {}, "2 GPUs, limits CPUs and memory, address ", ""),
        (
            Machine("a", gpus=1),
            {},
            "1 GPU, limits CPUs and memory, address ",
            "",
        ),
        (
            Machine("a", gpus=4),
            {},
            "4 GPUs, limits CPUs and memory, address ",
            "2 GPUs, not 4",
        ),
        (
            Machine("a"),
            {"gpus": []},
            "0 GPUs, limits CPUs and memory, address ",
            "",
        ),
        (
            Machine("a"),
            {"limits": ["cpu"]},
            "cannot limit memory, address ",
            "",
        ),
        (
            Machine("a"),
            {"limits": []},
            "cannot limit CPUs or memory, address ",
            "",
        ),
        (Machine("a"), {"time": 1003.5}, "clock 2.5 s ahead", ""),
        (Machine("a"), {"time": 998.0}, "clock 1.0 s behind", ""),
        (Machine("a"), {"time": 4600.0}, "clock 3599.0 s ahead", "set its clock"),
        (Machine("a"), {"address": ""}, "no address, clock as here", "give it an IPv4 address"),
    ],
)
def test_what_a_machine_answers(
    machine: Machine, change: dict[str, object], says: str, advice: str
) -> None:
    found = describe(machine, FACTS._replace(**change), 999.0, 1001.0)  # type: ignore[arg-type]
    assert found.says.startswith("Python 3.11.2, 8 CPUs, 64GiB, ")
    assert says in found.says
    assert advice in found.advice
    assert found.works is not bool(advice)


def test_gpus_that_are_not_found() -> None:
    """They may be of another maker."""
    found = describe(Machine("a", gpus=8), FACTS._replace(gpus=[]), 999.0, 1001.0)
    assert found.works
    assert found.advice == "no NVIDIA GPU was found, and the profile says that it has 8"


@needs_sshd
def test_machines_are_asked(tmp_path: Path) -> None:
    home = Home(tmp_path)
    add_engine(
        tmp_path, shared_sshd(), hosts=["127.0.0.1", {"address": "127.0.0.2", "python": "no"}]
    )
    profile = read_profile(home, "hosts")
    assert profile is not None
    one, other = HostsEngine(profile, home).findings()
    assert (one.name, one.works) == ("127.0.0.1", True)
    assert "CPU" in one.says
    assert (other.name, other.works) == ("127.0.0.2", False)
    assert other.says.startswith("it cannot run no: install Python 3.9 or newer there")


@needs_sshd
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    add_engine(tmp_path, shared_sshd(), folder=f"{tmp_path}/file/nodes")
    profile = read_profile(Home(tmp_path), "hosts")
    assert profile is not None
    (one,) = HostsEngine(profile, Home(tmp_path)).findings()
    text = f"no folder can be made in {tmp_path}/file/nodes: Not a directory"
    assert (one.works, one.says) == (
        False,
        f"{text} (`folder` of the profile names another one)",
    )
