"""Directories that jobs mount, on machines that do not have them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.faults import until
from support.lab import Lab, laboratory, needs_lab

pytestmark = needs_lab

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path, 2) as made:
        yield made


@pytest.fixture
def mine(lab: Lab) -> Path:
    """A folder of the laptop, which is empty on the machines."""
    folder = lab.folder / "mine"
    folder.mkdir()
    for machine in lab.machines:
        machine.run("mount", "-t", "tmpfs", "none", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_example_resumes_from_checkpoints_of_other_machines(lab: Lab, mine: Path) -> None:
    example = mine / "pytorch-digits"
    shutil.copytree(EXAMPLES / example.name, example, ignore=shutil.ignore_patterns("*.pt"))
    checkpoints = example / "checkpoints"
    for first in (0, 2):
        code, out, err = lab.muster(
            "run", "--engine", "hosts", str(example / "job.yaml"), "--", "--epochs", "2"
        )
        assert code == 0, err
        assert re.search(r"test accuracy: 0\.[89]", out), out
        assert ("resumes from epoch-1.pt" in out) == (first == 2)
        epochs = {path.name for path in checkpoints.glob("epoch-*")}
        assert epochs == {f"epoch-{number}.pt" for number in range(first + 2)}
    for machine in lab.machines:
        assert machine.run("ls", "-A", str(mine)) == ""
        assert list(machine.nodes.iterdir()) == []


def test_a_link_that_is_cut_while_a_directory_is_copied(lab: Lab, mine: Path) -> None:
    data = mine / "data"
    data.mkdir()
    (data / "large").write_bytes(os.urandom(8 << 20))
    lab.laptop.slow_down("10mbit")
    script = "cd $MUSTER_MOUNT_DATA; sha256sum large; tac large > back-$MUSTER_NODE_ADDRESS"
    lab.start(script, 2, "--mount", str(data))
    first, second = lab.machines
    until(lambda: any(first.nodes.glob("code/*.part")), "it is being copied", pause=0.01)
    first.cut()

    def arrived() -> bool:
        return any(path.suffix != ".part" for path in second.nodes.glob("code/*"))

    until(arrived, "the other one has it", pause=0.1)
    assert any(first.nodes.glob("code/*.part"))
    first.join()
    code, _, err = lab.muster("wait", "last")
    assert code == 0, err
    digest = hashlib.sha256((data / "large").read_bytes()).hexdigest()
    _, shown, _ = lab.muster("logs", "last")
    assert shown.count(digest) == 2
    back = [data / f"back-{machine.address}" for machine in (first, second)]
    assert back[0].read_bytes() == back[1].read_bytes()
    assert back[0].stat().st_size == 8 << 20


def test_a_volume_stays_on_its_machine(lab: Lab) -> None:
    lab.add_engine(hosts=[lab.machines[0].address])
    for number in range(2):
        code, out, err = lab.muster(
            *("run", "--engine", "hosts", "--mount", "volume:v", "--", "sh", "-c"),
            "echo run >> $MUSTER_MOUNT_V/runs; cat $MUSTER_MOUNT_V/runs",
        )
        assert code == 0, err
        assert out.count("run\n") == number + 1
