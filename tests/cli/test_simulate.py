"""`muster simulate` from the command line."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import cli
from muster.cli.simulate_output import chart
from muster.errors import InvalidInput
from support.terminals import Terminal

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


def test_simulate_shows_the_use_of_time_and_better_policies(tmp_path: Path) -> None:
    output = simulate(tmp_path, "--hours", "48").output
    assert (
        "64 nodes for 48 h; each fails every 200 h on average, so one node fails every 3.1 h"
        in output
    )
    assert "policy: restart_run in_place, 2 restarts" in output
    assert "3 FAILED after" in output
    assert "all 2 restarts are used up (failure.max_restarts)" in output
    assert "after the run failed" in output
    best = re.search(r"best: max_restarts: (\d+), a checkpoint every 14 min", output)
    assert best is not None
    assert "without limit" not in output
    again = simulate(tmp_path, "--hours", "48", "--max-restarts", best[1])
    assert "ended     3 still running" in again.output, "this number can be written, and suffices"


def test_wasted_time_is_told_from_useful_time(tmp_path: Path) -> None:
    lines = simulate(tmp_path, "--hours", "48").output.splitlines()
    table = {line[:24].strip(): line for line in lines}
    assert re.search(r"useful +[█#]+$", table["useful work"])
    assert re.search(r"overhead +[▒+]$", table["starting"])
    assert re.search(r"wasted +[░.]+$", table["after the run failed"])


@pytest.mark.parametrize(
    ("blocks", "rows"),
    [(" .:#", ["  :#", " ###"]), (" ▄█", ["  ▄█", " ███"])],
)
def test_a_chart_has_a_column_for_each_share(blocks: str, rows: list[str]) -> None:
    assert chart([0.0, 0.5, 0.8, 1.0], 2, blocks) == rows


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    argv = [sys.executable, "-m", "muster", "simulate", "job.yaml", "--mtbf", "200h", "--runs", "2"]
    with Terminal(argv, env={**os.environ, "TERM": "xterm"}, cwd=str(tmp_path)) as command:
        command.wait_for("simulated 0 of ")
        assert command.end() == 0
        assert not any(line.startswith("simulated") for line in command.screen.lines)
        assert any(line.startswith("goodput") for line in command.screen.lines)


def test_json_has_the_same_data(tmp_path: Path) -> None:
    data = json.loads(simulate(tmp_path, "--max-restarts", "1000", "--json").output)
    requested = data["variants"][0]
    assert data["nodes"] == 64
    assert requested["name"] == "current policy"
    assert len(requested["runs"]) == 3
    assert sum(requested["uses"].values()) == pytest.approx(64 * 72 * 3600)


def test_the_plot_is_an_svg(tmp_path: Path) -> None:
    picture = tmp_path / "plot.svg"
    assert simulate(tmp_path, "--plot", str(picture)).exit_code == 0
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--mtbf", "soon"], "--mtbf: 'soon' is not a duration"),
        (["--mtbf", "0s"], "--mtbf: must be more than 0"),
        (["--mtbf", "2000"], "--mtbf: 2000 has no unit (write 2000s, 2000m, 2000h or 2000d)"),
        (["--work", "100"], "--work: 100 has no unit (write 100s, 100m, 100h or 100d)"),
        (["--hours", "0"], "--hours: must be more than 0 and at most 1,000,000 hours, not 0"),
        (["--hours", "nan"], "--hours: must be more than 0 and at most 1,000,000 hours, not nan"),
        (["--hours", "1e9"], "--hours: must be more than 0 and at most 1,000,000 hours, not 1e9"),
        (["--hours", "3 days"], "--hours: '3 days' is not a duration"),
        (["--checkpoint-every", "0"], "--checkpoint-every: must be more than 0"),
        (["--plot", "/nowhere/plot.svg"], "--plot: cannot write /nowhere/plot.svg"),
        (["--plot", "plot.tiff2"], "--plot: cannot write plot.tiff2"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, args: list[str], message: str) -> None:
    error = simulate(tmp_path, *args).exception
    assert isinstance(error, InvalidInput)
    assert message in str(error)


@pytest.mark.parametrize(
    ("mtbf", "hint"),
    [("10s", "use fewer --runs or"), ("1m", "use fewer --runs or")],
)
def test_too_many_failures_are_refused(tmp_path: Path, mtbf: str, hint: str) -> None:
    output = simulate(tmp_path, "--mtbf", mtbf)
    assert isinstance(output.exception, InvalidInput)
    assert str(output.exception).startswith(f"--mtbf {mtbf}: about ")
    assert hint in str(output.exception)


@pytest.mark.parametrize("hours", ["48", "48h", "2d", "48.0"])
def test_hours_may_have_a_unit(tmp_path: Path, hours: str) -> None:
    assert "64 nodes for 48 h; each" in simulate(tmp_path, "--hours", hours).output


def test_one_restart_is_singular(tmp_path: Path) -> None:
    assert "in_place, 1 restart;" in simulate(tmp_path, "--max-restarts", "1").output
