"""The commands of the guide, typed on a real Slurm cluster."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from support.pages import read_page, type_commands
from support.slurm_cluster import needs_slurm, shared_cluster, use_cluster

#: What the reader's cluster has, and this one.
WORDS = {"--account lab --partition gpu": "--partition main", "salloc --nodes=4": "true"}

pytestmark = [
    needs_slurm,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]


def test_the_commands_of_the_guide_work(
    tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cluster(shared_cluster(), monkeypatch)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    page, folder, results = read_page("docs/guides/slurm.md"), tmp_path / "own", tmp_path / "typed"
    folder.mkdir()
    results.mkdir()
    (folder / "train.py").write_text("print('epoch 1/1')\n")
    (folder / "job.yaml").write_text("artifact: train.py\nnodes: 2\n")
    commands = []
    for command in page.commands:
        text = command.text
        for theirs, ours in WORDS.items():
            text = text.replace(theirs, ours)
        # what it prints is about a cluster that the reader does not have
        commands.append(command._replace(text=text, output=[]))
    assert len(commands) > 5
    type_commands(page, commands, folder, results)
    assert "epoch 1/1" in (results / "1.out").read_text()
