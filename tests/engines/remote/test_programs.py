"""Command lines on hosts without Muster."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.engines.remote.programs import HostPython
from muster.node.launch_message import Probe, ServiceLaunch
from support.node_servers import launch

PYTHON = HostPython("/usr/bin/python3", "/m")
HELPER = ["/usr/bin/python3", "/m/muster/node/run_module.py", "muster.node.ray", "joined", "a"]
NAMED = ("/home/me/.venv/bin/python", "-m", "muster.node.ray", "joined", "a")


@pytest.mark.parametrize(
    ("words", "there"),
    [
        (NAMED, HELPER),
        (("python", "-m", "muster.node.ray"), HELPER[:3]),
        (("python", "-m", "mine"), ["python", "-m", "mine"]),
        (("python", "-c", "muster.node.ray"), ["python", "-c", "muster.node.ray"]),
        (("env", "python", *NAMED[1:]), ["env", "python", *NAMED[1:]]),
        (("python", "-m"), ["python", "-m"]),
        ((), []),
    ],
)
def test_modules_of_ours_are_run_from_the_host_s_folder(
    words: tuple[str, ...], there: list[str]
) -> None:
    assert PYTHON.words(words) == there


def test_every_command_line_of_a_launch() -> None:
    check = {"type": "succeeds", "command": list(NAMED), "patience": 1.0}
    service = ServiceLaunch("s", list(NAMED), {}, "o", "e", check, {"type": "answers"}, 1.0)
    probe = Probe(1.0, 1.0, 1, 0.0, command=list(NAMED))
    message = launch(Path("/n"), 0, "true").launch._replace(
        launcher=list(NAMED), services=[service], gather=check, probe=probe
    )
    there = PYTHON.launch(message)
    (served,) = there.services
    assert there.gather is not None and served.after is not None and there.probe is not None
    found = (there.launcher, served.argv, served.after["command"], there.gather["command"])
    assert [*found, there.probe.command] == [HELPER] * 5
    assert served.ready == {"type": "answers"}
    assert there.env == message.env
