"""`muster simulate`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import cli
from muster.errors import InvalidInput

JOB = """
command: train
nodes: 2
failure: {max_restarts: 2}
"""


def simulate(tmp_path: Path, *args: str) -> Result:
    spec = tmp_path / "job.yaml"
    spec.write_text(JOB)
    argv = ["simulate", str(spec), "--nodes", "64", "--mtbf", "200h", "--runs", "3", *args]
    return CliRunner().invoke(cli, argv, catch_exceptions=True)


def test_it_tells_where_the_time_goes_and_what_would_be_better(tmp_path: Path) -> None:
    told = simulate(tmp_path, "--hours", "48").output
    assert (
        "64 nodes for 48 h; each fails every 200 h on average, so one of them every 3.1 h" in told
    )
    assert "policy: restart_run in_place, 2 restarts" in told
    assert "3 FAILED after" in told
    assert "all 2 restarts are used up (failure.max_restarts)" in told
    assert "after the run had failed" in told
    assert "best: no limit, and a checkpoint every 14 min" in told


def test_json_has_the_same_as_data(tmp_path: Path) -> None:
    data = json.loads(simulate(tmp_path, "--max-restarts", "1000", "--json").output)
    asked = data["variants"][0]
    assert data["nodes"] == 64
    assert asked["name"] == "as it is"
    assert len(asked["runs"]) == 3
    assert sum(asked["uses"].values()) == pytest.approx(64 * 72 * 3600)


def test_the_picture_is_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    assert simulate(tmp_path, "--plot", str(picture)).exit_code == 0
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--mtbf", "soon"], "--mtbf: 'soon' is not a duration"),
        (["--mtbf", "0s"], "--mtbf: must be more than 0"),
        (["--checkpoint-every", "0"], "--checkpoint-every: must be more than 0"),
        (["--plot", "/nowhere/plot.svg"], "--plot: cannot write /nowhere/plot.svg"),
        (["--plot", "plot.tiff2"], "--plot: cannot write plot.tiff2"),
    ],
)
def test_bad_input_is_told(tmp_path: Path, args: list[str], message: str) -> None:
    error = simulate(tmp_path, *args).exception
    assert isinstance(error, InvalidInput)
    assert message in str(error)


@pytest.mark.parametrize(
    ("mtbf", "hint"),
    [("10", "--mtbf 10 is 10 seconds: did you mean 10h?"), ("1m", "ask for fewer --runs or")],
)
def test_too_many_failures_are_refused(tmp_path: Path, mtbf: str, hint: str) -> None:
    told = simulate(tmp_path, "--mtbf", mtbf)
    assert isinstance(told.exception, InvalidInput)
    assert str(told.exception).startswith(f"--mtbf {mtbf}: some ")
    assert hint in str(told.exception)


def test_one_restart_is_one(tmp_path: Path) -> None:
    assert "in_place, 1 restart;" in simulate(tmp_path, "--max-restarts", "1").output
