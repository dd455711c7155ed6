"""The commands of the guide, typed by somebody whose two machines are a real sshd."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.pages import read_page, type_commands
from support.ssh_hosts import needs_sshd, shared_sshd

MACHINES = "--host ana@gpu1 --host gpu2:2222"
#: Each address is a machine of its own, but they share a queue.
LOOPBACK = "--host 127.0.0.1 --host 127.0.0.2 --slots 2"

pytestmark = [
    needs_sshd,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


def test_the_commands_of_the_guide_work(tmp_path: Path, own_home: Path) -> None:
    page, folder, results = read_page("docs/guides/hosts.md"), tmp_path / "own", tmp_path / "typed"
    folder.mkdir()
    results.mkdir()
    (folder / "train.py").write_text("print('epoch 1/1')\n")
    own = f"--ssh-config {shared_sshd().config} --folder {own_home}/nodes --python {sys.executable}"
    commands = [
        # what it prints is about machines that the reader does not have
        command._replace(text=command.text.replace(MACHINES, f"{LOOPBACK} {own}"), output=[])
        for command in page.commands
    ]
    assert sum(LOOPBACK in command.text for command in commands) == 2
    assert len(commands) > 3
    type_commands(page, commands, folder, results)
    assert "epoch 1/1" in (results / "1.out").read_text()
