"""docs/internals/simulation.md lists all faults and invariants; the command of the simulation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulation.harness.batch import Finding, Tally
from simulation.harness.command import fault_lines, invariant_lines, main
from simulation.harness.invariants import INVARIANTS, Breach, name

PAGE = Path(__file__).parents[2] / "docs/internals/simulation.md"


def table(heading: str) -> Iterator[str]:
    """The second column of the first table below a heading."""
    _, _, section = PAGE.read_text().partition(f"\n## {heading}\n")
    rows = section.partition("\n## ")[0].partition("| --- | --- |\n")[2].partition("\n\n")[0]
    yield from (row.split(" | ")[1].removesuffix(" |") for row in rows.splitlines())


def test_the_page_lists_every_fault_once() -> None:
    named = [name for cell in table("Faults") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(re.findall(r"^\* `(\w+)`", "\n".join(fault_lines()), re.M))


def test_the_page_lists_every_invariant_once() -> None:
    named = [name for cell in table("Invariants") for name in cell.split("; ")]
    assert sorted(named) == sorted(map(name, INVARIANTS))


def test_a_seed_is_replayed_with_a_trace_and_other_faults() -> None:
    plan = '[{"fault": "StoreIsBusy", "step": 2, "times": 3}]'
    result = CliRunner().invoke(main, ["--seed", "4711", "--trace", "--plan", plan])
    assert result.exit_code == 0, result.output
    assert "StoreIsBusy(step=2, times=3)" in result.output
    assert result.output.count("*** store busy") == 3
    assert "StartNodes" in result.output


def test_a_report_of_many_seeds() -> None:
    result = CliRunner().invoke(main, ["--report", "20"])
    assert result.exit_code == 0, result.output
    assert "seeds 0 to 19: 0 of them break an invariant" in result.output


def test_many_seeds_are_tried_with_progress() -> None:
    result = CliRunner().invoke(main, ["--seeds", "100:120"])
    assert result.exit_code == 0, result.output
    assert result.stdout == "seeds 100:120\n"
    assert result.stderr.startswith("20 of 20; ")


def test_new_seeds_are_random() -> None:
    first, second = (CliRunner().invoke(main, ["--seeds", "1"]).stdout for _ in range(2))
    assert first.startswith("seeds ") and first != second


def test_broken_invariants_are_explained_and_the_command_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finding = Finding(7, (Breach("backoff grows", "restart 1"),))
    tally = Tally(Counter(runs=3), [finding] * 7)
    monkeypatch.setattr("simulation.harness.command.run_seeds", lambda seeds: iter([tally]))
    monkeypatch.setattr(
        "simulation.harness.command.explain", lambda finding: iter([f"seed {finding.seed}"])
    )
    result = CliRunner().invoke(main, ["--seeds", "5:8"])
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "seeds 5:8",
        *["seed 7"] * 5,
        "7 of 3 seeds break an invariant",
    ]


def test_the_remaining_seeds_are_printed_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seeds: range) -> Iterator[Tally]:
        yield Tally(Counter(runs=250), [])
        raise KeyboardInterrupt

    monkeypatch.setattr("simulation.harness.command.run_seeds", interrupted)
    result = CliRunner().invoke(main, ["--seeds", "1000:2000"])
    assert result.exit_code == 130
    assert result.stdout.splitlines()[-1] == "left: make seeds SEEDS=1250:2000"


def test_faults_and_invariants_are_listed() -> None:
    result = CliRunner().invoke(main, ["--list"])
    assert result.output.splitlines() == [*fault_lines(), "", *invariant_lines()]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--seeds", "many"],
        ["--seeds", "0"],
        ["--seeds", "9:3"],
        ["--seed", "1", "--plan", "[1]"],
        ["--seed", "1", "--plan", "{"],
    ],
)
def test_invalid_options_are_refused(words: list[str]) -> None:
    assert CliRunner().invoke(main, words).exit_code == 2
