"""Commands of ADS YAML: launchers, and commands that need a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InvalidInput
from support.ads import (
    job,
    problems_of,
    read,
    refusals,
)


@pytest.mark.parametrize(
    ("command", "shell"),
    [
        ("torchrun a.py $X 'b c' \"d $X\"", "exec python a.py $X 'b c' \"d $X\""),
        ("torchrun \\\n  a.py *.csv `date` $(a|b)", "exec python a.py *.csv `date` $(a|b)"),
        ("accelerate launch a.py ~/data", "exec python a.py ~/data"),
        (["python", "a.py", "b $X", "c && d"], "python a.py \"b $X\" 'c && d'"),
        ("echo $NODE_RANK && python a.py\n", "echo $NODE_RANK && python a.py"),
        ("LEVEL=INFO python a.py", "LEVEL=INFO python a.py"),
        ("python a.py > out.txt 2>&1", "python a.py > out.txt 2>&1"),
        ("python a.py; python b.py", "python a.py; python b.py"),
        ("python a.py\npython b.py", "python a.py\npython b.py"),
        ("python a.py | tee log", "python a.py | tee log"),
        ("python a.py *.csv", "python a.py *.csv"),
        ("source env.sh", "source env.sh"),
    ],
)
def test_a_shell_command_is_unchanged(folder: Path, command: str | list[str], shell: str) -> None:
    spec, _ = read(folder, job("pyTorchDistributed", source=".", command=command))
    assert spec.command == ("sh", "-c", shell)
    data = job("pyTorchDistributed", source=".", command=command, args=["--lr", "1"])
    assert "write them into the command" in str(InvalidInput(*problems_of(folder, data)))


def test_a_launcher_started_by_a_shell_is_noted(folder: Path) -> None:
    command = "cd . && torchrun --standalone train.py"
    spec, notes = read(folder, job("pyTorchDistributed", source=".", command=command))
    assert spec.command == ("sh", "-c", command)
    assert any(
        note.startswith("torchrun runs on each node: Muster starts the ranks only")
        for note in notes
    )


@pytest.mark.parametrize(
    ("command", "expected", "processes"),
    [
        ("torchrun train.py --x 1", ("python", "train.py", "--x", "1"), 1),
        ("torchrun --nproc_per_node=4 train.py", ("python", "train.py"), 4),
        ("torchrun --nproc-per-node 2 --rdzv-backend c10d a.py", ("python", "a.py"), 2),
        ("deepspeed train.py", ("python", "train.py"), 1),
        ("accelerate launch --num_processes 6 train.py", ("python", "train.py"), 2),
        ("python train.py", ("python", "train.py"), 1),
        ("python train.py 'a && b' \"c;d\"", ("python", "train.py", "a && b", "c;d"), 1),
        ("torchrun a.py '$X' \\$X", ("python", "a.py", "$X", "$X"), 1),
        ("torchrun train.py 'a > b'", ("python", "train.py", "a > b"), 1),
    ],
)
def test_pytorch(folder: Path, command: str, expected: tuple[str, ...], processes: int) -> None:
    data = job("pyTorchDistributed", source=".", command=command, replicas=3)
    spec, _ = read(folder, data)
    assert (spec.framework, spec.nodes, spec.command) == ("pytorch", 3, expected)
    assert spec.processes_per_node == processes


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("torchrun --nproc_per_node=gpu a.py", "torchrun --nproc-per-node must be a number"),
        ("torchrun --nproc-per-node auto a.py", "must be a number here, not 'auto'"),
        ("torchrun --nproc-per-node=0 a.py", "must be a number here, not '0'"),
        ("torchrun --nproc-per-node=² a.py", "must be a number here, not '²'"),
        ("accelerate launch --num_processes=all a.py", "not 'all'"),
        (
            "accelerate launch --num_processes=3 a.py",
            "3 processes do not divide evenly",
        ),
        ("deepspeed --num_gpus=x a.py", "not 'x'"),
        ("torchrun --tee=3 a.py", "torchrun --tee is not known here"),
        ("torchrun 'a.py", "cannot be split into words"),
        ("torchrun a.py && echo done", "torchrun is not run here, so no shell reads '&&'"),
        ("torchrun a.py>log", "no shell reads '>'"),
        ("torchrun a.py \"$(a '>')\" | tee log", "no shell reads '|'"),
        ("deepspeed a.py\necho done", "no shell reads '\\n'"),
        ("accelerate launch a.py; b", "accelerate launch is not run here"),
    ],
)
def test_unsupported_launcher_options_are_refused(folder: Path, command: str, text: str) -> None:
    data = job("pyTorchDistributed", source=".", command=command, replicas=2)
    found = refusals(folder, data)
    assert text in found["spec.runtime.spec.command"]
