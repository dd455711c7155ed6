"""Output directories of runs that are suspended, and of nodes that get other machines."""

from __future__ import annotations

import json
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
#: Continues where it was when it was stopped; ends once a file exists.
STEPS = (
    "cd $MUSTER_OUTPUTS; mkdir -p steps; ls steps; touch steps/$MUSTER_RESTART; echo began; "
    "[ $MUSTER_RESTART -lt {failures} ] && exit 3; until [ -e {flag} ]; do sleep 0.05; done"
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with laboratory(tmp_path, 2) as made:
        yield made


def outputs_of(lab: Lab) -> Path:
    (run,) = (lab.home / "runs").iterdir()
    return run / "outputs"


def host_of_node(lab: Lab) -> str:
    _, out, _ = lab.muster("status", "last", "--json")
    (node,) = json.loads(out)["nodes"]
    host: str = node["host"]
    return host


def output_of(lab: Lab) -> list[str]:
    """What the node has printed, in all attempts."""
    files = sorted(outputs_of(lab).parent.glob("logs/*/workers-0.out"))
    return "".join(file.read_text() for file in files).split()


def began(lab: Lab, times: int) -> None:
    until(lambda: output_of(lab).count("began") >= times, f"it began {times} times", pause=0.1)


def test_a_suspended_run_that_gets_another_machine(lab: Lab) -> None:
    first, second = lab.machines
    flag = lab.folder / "flag"
    lab.add_engine(hosts=[first.address])
    lab.start(STEPS.format(flag=flag, failures=0), 1)
    began(lab, 1)
    assert host_of_node(lab) == first.address
    assert lab.muster("runs", "suspend", "last")[0] == 0
    until(lambda: [path.name for path in outputs_of(lab).rglob("0")] == ["0"], "it was collected")
    lab.add_engine(hosts=[second.address])
    flag.touch()
    assert lab.muster("runs", "resume", "last")[0] == 0
    assert lab.muster("wait", "last")[0] == 0
    assert host_of_node(lab) == second.address
    assert output_of(lab) == ["began", "0", "began"]
    assert {path.name for path in outputs_of(lab).glob("rank-0/steps/*")} == {"0", "1"}
    for machine in lab.machines:
        assert list(machine.nodes.iterdir()) == []


@pytest.mark.slow
def test_a_node_that_is_replaced_on_another_machine(lab: Lab) -> None:
    first, second = lab.machines
    lab.add_engine(hosts=[first.address, second.address], isolation_timeout="5s")
    flag = lab.folder / "flag"
    lab.start(STEPS.format(flag=flag, failures=1), 1, "--set", "failure.max_restarts=3")
    began(lab, 2)
    (lost,) = (one for one in lab.machines if one.address == host_of_node(lab))
    (other,) = (one for one in lab.machines if one is not lost)
    lost.cut()
    began(lab, 3)
    flag.touch()
    assert lab.muster("wait", "last")[0] == 0
    assert host_of_node(lab) == other.address
    assert output_of(lab) == ["began", "0", "began", "0", "began"], (
        "what the first had written when it failed was collected"
    )
    assert {path.name for path in outputs_of(lab).glob("rank-0/steps/*")} == {"0", "2"}


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_example_resumes_from_checkpoints_in_its_outputs(lab: Lab) -> None:
    """On machines in another order: the node of rank 0 has another one than before."""
    example = lab.folder / "digits"
    example.mkdir()
    shutil.copy(EXAMPLES / "pytorch-digits" / "train.py", example)
    (example / "job.yaml").write_text(
        "artifact: .\nframework: pytorch\nnodes: 2\n"
        "command: 'MUSTER_MOUNT_CHECKPOINTS=$MUSTER_OUTPUTS exec python train.py --epochs 200'\n"
    )
    code, _, err = lab.muster("run", "--engine", "hosts", "--detach", str(example / "job.yaml"))
    assert code == 0, err

    def epochs() -> list[str]:
        return re.findall(r"epoch (\d+):", lab.muster("logs", "last")[1])

    until(lambda: len(epochs()) > 2, "some epochs", pause=0.2)
    assert lab.muster("runs", "suspend", "last")[0] == 0
    until(lambda: "SUSPENDED" in lab.muster("status", "last")[1], "it is suspended", pause=0.2)
    (folder,) = outputs_of(lab).glob("rank-0")
    saved = max(int(path.stem[6:]) for path in folder.glob("epoch-*.pt"))
    lab.add_engine(hosts=[one.address for one in reversed(lab.machines)])
    assert lab.muster("runs", "resume", "last")[0] == 0
    until(lambda: f"resumes from epoch-{saved}.pt" in lab.muster("logs", "last")[1], pause=0.2)
    until(lambda: str(saved + 1) in epochs(), "it continues", pause=0.2)
    assert lab.muster("cancel", "last")[0] == 0
