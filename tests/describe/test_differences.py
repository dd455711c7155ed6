"""Which settings differ between two runs."""

from __future__ import annotations

from typing import Any

from muster.describe.differences import difference_lines


def spec(**group: Any) -> dict[str, Any]:
    return {"engine": "local", "tags": {}, "node_groups": [{"name": "workers", **group}]}


def test_each_setting_that_differs_has_a_line() -> None:
    before = spec(nodes=1, env={"LR": "0.1", "OLD": "x"}, args=("a", "b c"))
    after = {**spec(nodes=2, env={"LR": "0.1", "NEW": "y"}, args=("a",)), "engine": "slurm"}
    assert difference_lines(before, after) == [
        "engine: local -> slurm",
        "node_groups[workers].nodes: 1 -> 2",
        "node_groups[workers].env.OLD: x -> not set",
        "node_groups[workers].args: a 'b c' -> a",
        "node_groups[workers].env.NEW: not set -> y",
    ]
    assert difference_lines(before, before) == []


def test_an_empty_value_is_seen() -> None:
    (line,) = difference_lines(spec(env={"LR": "0.1"}), spec(env={"LR": ""}))
    assert line == 'node_groups[workers].env.LR: 0.1 -> ""'


def test_secrets_are_hidden_and_yet_said_to_differ() -> None:
    (line,) = difference_lines(spec(env={"API_TOKEN": "first"}), spec(env={"API_TOKEN": "second"}))
    assert line == "node_groups[workers].env.API_TOKEN: *** -> ***"


def test_tags_of_muster_and_long_values_are_left_out() -> None:
    before, after = spec(), spec()
    after["tags"] = {"muster-rerun-of": "train-1", "team": "x" * 100}
    (line,) = difference_lines(before, after)
    assert line == f"tags.team: not set -> {'x' * 57}..."
    many = spec(env={f"V{number}": "1" for number in range(50)})
    assert difference_lines(spec(env={}), many)[-1] == "and 30 other settings"
