"""Command lines that cannot run: what was probably meant is named, as it has to be typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from muster.client.client import Client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.yaml").write_text(
        "node_groups:\n- {name: workers, nodes: 2, command: hostname}\n"
    )
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "muster", *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run job.yml", 'no such file (did you mean "job.yaml"?)'),
        ("convert job.yml", 'no such file (did you mean "job.yaml"?)'),
        ("run trian.py", '(did you mean "train.py"?)'),
        ("run hostname", "(a command stands after --: `muster run -- hostname`)"),
        ("run nosuch", "(check the path; a command stands after --: `muster run -- nosuch`)"),
        ("run no/such", "such (check the path)"),
        (
            "run python train.py",
            "write `muster run train.py`, or `muster run -- python train.py` for a command",
        ),
        (
            "explain python train.py 3",
            "write `muster explain train.py -- 3`, or `muster explain -- python train.py 3` for",
        ),
        ("run train.py 3", "its arguments stand after --: `muster run train.py -- 3`"),
        ("run echo a", "a command stands after --: `muster run -- echo a`"),
        ("run job.yaml --gpus 2", "No such option '--gpus': write --set resources.gpus=VALUE"),
        ("run job.yaml --image=x", "No such option '--image': write --set image=VALUE"),
        ("run job.yaml --dry-run", "`muster explain` with the same words shows what would run"),
        ("run job.yaml --framework-options a=1", "write --option NAME=VALUE"),
        ("run train.py --epochs 3", "what the program is to get stands after --"),
        ("run train.py --node 3", "did you mean --nodes?"),
        ("run job.yaml --option threads=2", "error: --option threads: unknown field"),
        ("run job.yaml --nodes wrokers=3", "error: --nodes wrokers=3: no group named 'wrokers'"),
        ("run job.yaml --set node_groups.0.nodes=3", "(write node_groups[0].nodes=...)"),
        ("run job.yaml --set failure.max_restart=2", 'did you mean "max_restarts"?'),
        ("run job.yaml --set failre.max_restarts=2", 'did you mean "failure"?'),
        ("run job.yaml --set framework=dask", "belongs to the Job; a run cannot change it"),
        ("run code", "(say which file to run: --entrypoint main.py; or give a command"),
    ],
)
def test_what_was_meant_is_named(folder: Path, words: str, said: str) -> None:
    assert said in refused(*words.split())


def test_a_run_that_has_ended_can_be_started_again(folder: Path, client: Client) -> None:
    job, new = client.job(command=["false"])
    run = client.start(client.draft(job, new_job=new)).wait()
    hint = f"`muster run {run.job_name}@1` starts it again"
    assert hint in refused("runs", "resume", run.name)
    again = client.start(client.draft(client.job(f"{run.job_name}@1")[0]))
    assert again.wait().name == f"{run.job_name}-2"
