"""docs/simulation.md says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.simulation.__main__ import fault_lines, invariant_lines, main

PAGE = Path(__file__).parents[2] / "docs" / "simulation.md"


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("line", [*fault_lines(), *invariant_lines()])
def test_faults_and_invariants_are_on_the_page(line: str) -> None:
    assert words(line) in words(PAGE.read_text())


def test_nothing_else_is() -> None:
    sections = PAGE.read_text().split("\n## ")
    listed = {section.splitlines()[0]: section.count("\n* ") for section in sections}
    assert listed["Faults"] == len([*fault_lines()])
    assert listed["Invariants"] == len([*invariant_lines()])


def test_a_seed_is_replayed_with_a_trace_and_other_faults() -> None:
    plan = '[{"fault": "StoreIsBusy", "step": 2, "times": 3}]'
    result = CliRunner().invoke(main, ["--seed", "4711", "--trace", "--plan", plan])
    assert result.exit_code == 0, result.output
    assert "StoreIsBusy(step=2, times=3)" in result.output
    assert result.output.count("*** store busy") == 3
    assert "StartNodes" in result.output


def test_many_are_reported() -> None:
    result = CliRunner().invoke(main, ["--report", "20"])
    assert result.exit_code == 0, result.output
    assert "seeds 0 to 19: 0 of them break an invariant" in result.output


def test_faults_and_invariants_are_listed() -> None:
    result = CliRunner().invoke(main, ["--list"])
    assert result.output.splitlines() == [*fault_lines(), "", *invariant_lines()]


@pytest.mark.parametrize(
    "words",
    [[], ["--seeds", "many"], ["--seed", "1", "--plan", "[1]"], ["--seed", "1", "--plan", "{"]],
)
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2
