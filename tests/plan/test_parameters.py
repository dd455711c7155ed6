"""The parameters of replicas."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.plan.model import GroupPlan, RunPlan
from muster.plan.parameters import (
    arguments,
    parameters_of,
    shuffled,
    variables,
    with_parameters,
)
from muster.plan.template import Facts
from muster.spec.arrays import format_values
from muster.spec.models import Array
from muster.spec.parameter_rows import pack_rows

PlanOf = Callable[..., RunPlan]
TEXTS = st.lists(st.text(max_size=3), min_size=1, max_size=4)
GRIDS = st.dictionaries(st.sampled_from(["a", "b", "c"]), TEXTS, min_size=1)
ROWS = st.lists(st.tuples(st.text(max_size=2), st.text(max_size=2)), min_size=1, max_size=4)


def array_of(grid: dict[str, list[str]], rows: list[tuple[str, str]] | None, **more: Any) -> Array:
    return Array(
        parameters={name: format_values(values) for name, values in grid.items()},
        rows=None if rows is None else pack_rows(["x", "y"], rows),
        **more,
    )


def expanded(
    grid: dict[str, list[str]], rows: list[tuple[str, str]] | None
) -> list[dict[str, str]]:
    heads = [{}] if rows is None else [{"x": x, "y": y} for x, y in rows]
    sets = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    return [head | each for head in heads for each in sets]


@given(GRIDS, st.none() | ROWS)
def test_sets_are_the_product_in_order(
    grid: dict[str, list[str]], rows: list[tuple[str, str]] | None
) -> None:
    parameters = parameters_of("g", array_of(grid, rows))
    expected = expanded(grid, rows)
    found = [parameters.values(replica) for replica in range(len(parameters))]
    assert found == expected
    assert [list(each) for each in found] == [list(parameters.names)] * len(expected)


@given(GRIDS, st.none() | ROWS, st.integers(0, 9), st.data())
def test_a_sample_has_sets_of_the_product_and_none_twice(
    grid: dict[str, list[str]],
    rows: list[tuple[str, str]] | None,
    seed: int,
    data: st.DataObject,
) -> None:
    places = {str(number): value for number, value in enumerate(expanded(grid, rows))}
    count = data.draw(st.integers(1, len(places)))
    distinct = {name: [f"{n}{v}" for n, v in enumerate(values)] for name, values in grid.items()}
    numbered = None if rows is None else [(f"{n}{x}", y) for n, (x, y) in enumerate(rows)]
    array = array_of(distinct, numbered, sample=count, sample_seed=seed)
    parameters = parameters_of("g", array)
    found = [tuple(parameters.values(replica).items()) for replica in range(len(parameters))]
    assert len(set(found)) == count
    assert set(found) <= {tuple(each.items()) for each in expanded(distinct, numbered)}


@given(st.integers(1, 300), st.integers(0, 99))
def test_an_order_has_each_item_once(count: int, seed: int) -> None:
    assert sorted(shuffled(place, count, seed) for place in range(count)) == list(range(count))


def test_orders_are_the_same_everywhere_and_differ_by_seed() -> None:
    """Runs that started with an earlier version continue with the same sets."""
    assert [shuffled(place, 10, 3) for place in range(10)] == [6, 1, 5, 2, 7, 0, 9, 8, 4, 3]
    assert [shuffled(place, 10, 4) for place in range(10)] != list(range(10))
    assert shuffled(10**6, 2**62, 1) < 2**62


def test_values_drawn_from_distributions() -> None:
    grid = {
        "lr": "loguniform(1e-5,1e-1)",
        "drop": "uniform(0,0.5)",
        "layers": "int(2,4)",
        "act": "choice(relu,gelu)",
        "size": "8,16",
    }
    parameters = parameters_of("g", Array(parameters=grid, sample=200))
    sets = [parameters.values(replica) for replica in range(200)]
    assert sets == [parameters.values(replica) for replica in range(200)]
    rates = [float(each["lr"]) for each in sets]
    assert all(1e-5 <= rate <= 1e-1 for rate in rates)
    assert 60 < sum(rate < 1e-3 for rate in rates) < 140  # half of the decades
    assert all(0 <= float(each["drop"]) <= 0.5 for each in sets)
    assert {each["layers"] for each in sets} == {"2", "3", "4"}
    assert {each["act"] for each in sets} == {"relu", "gelu"}
    assert {each["size"] for each in sets} == {"8", "16"}
    other = parameters_of("g", Array(parameters=grid, sample=200, sample_seed=1))
    assert other.values(0) != sets[0]


def test_values_are_drawn_alike_in_every_version_of_python() -> None:
    """Runs that started with an earlier version continue with the same sets."""
    grid = {"a": "int(1,1000)", "b": "choice(x,y,z)", "c": "uniform(0,1)", "d": "0..999999"}
    parameters = parameters_of("g", Array(parameters=grid, sample=2, sample_seed=5))
    rng = random.Random("5/1")
    rng.random()  # of the rows
    a, b, c, d = (rng.random() for _ in range(4))
    assert parameters.values(1) == {
        "a": str(int(a * 1000) + 1),
        "b": "xyz"[int(b * 3)],
        "c": f"{c:.6g}",
        "d": str(int(d * 10**6)),
    }


@pytest.mark.parametrize("replica", [-1, 4])
def test_replicas_that_do_not_exist(replica: int) -> None:
    parameters = parameters_of("g", Array(parameters={"a": "1..4"}))
    with pytest.raises(IndexError):
        parameters.values(replica)


GROUP = GroupPlan("g", 0, 4, 1, args=("--epochs", "3"), parallelism=2)
PARAMETERS = parameters_of("g", Array(parameters={"lr": "0.1,$${x}", "max.steps": "1,2"}))


def test_a_program_gets_arguments_and_variables() -> None:
    values = PARAMETERS.values(1)
    assert arguments(GROUP, values) == ["--lr", "0.1", "--max.steps", "2"]
    assert variables(values) == {"MUSTER_PARAM_LR": "0.1", "MUSTER_PARAM_MAX_STEPS": "2"}


def test_a_value_that_looks_like_an_option_is_in_the_same_word() -> None:
    values = {"a": "-7.52e-05", "b": "--id=5", "c": "1-2"}
    assert arguments(GROUP, values) == ["--a=-7.52e-05", "--b=--id=5", "--c", "1-2"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"node_args": ("--lr", "0.1", "--max.steps", "2")}),
        ({"command": ("train",)}, {"node_args": ("--lr", "0.1", "--max.steps", "2")}),
        (
            {"command": ("train", "x=${param.lr}")},
            {"command": ("train", "x=0.1"), "node_args": ()},
        ),
        ({"args": ("${param.lr}${rank}",)}, {"args": ("0.1${rank}",), "node_args": ()}),
        ({"args": ("$${param.lr}",)}, {"args": ("${param.lr}",)}),
        ({"node_args": ("${param.lr}",)}, {"node_args": ("${param.lr}",), "args": GROUP.args}),
        ({"node_env": {"A": "${param.max.steps}"}}, {"node_args": ()}),
        (
            {"command": ("sh", "-c", "echo ${param.lr} $RANK", "sh")},
            {"command": ("sh", "-c", "echo ${MUSTER_PARAM_LR} $RANK", "sh"), "node_args": ()},
        ),
        (
            {"command": ("bash", "-c", 'echo "$1"', "${param.lr}", "a=${param.lr}")},
            {"command": ("bash", "-c", 'echo "$1"', "0.1", "a=0.1"), "node_args": ()},
        ),
        ({"command": ("/bin/bash", "-ec", "true")}, {"node_args": ()}),
        ({"command": ("bash", "-eu", "-o", "pipefail", "-c", "true")}, {"node_args": ()}),
    ],
)
def test_where_the_values_go(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    made = with_parameters(replace(GROUP, **fields), PARAMETERS.values(1))
    assert {name: getattr(made, name) for name in expected} == expected


def test_added_arguments_are_not_placeholders() -> None:
    """Those of `node_args` are filled later."""
    made = with_parameters(GROUP, PARAMETERS.values(2))
    assert made.node_args[:2] == ("--lr", "$$$${x}")


def test_placeholders_of_a_node(plan_of: PlanOf) -> None:
    group = {
        "name": "a",
        "nodes": 2,
        "array": {"lr": "1,2,3"},
        "node_env": {"RATE": "${param.lr}/${index}"},
    }
    plan = plan_of({"name": "demo", "command": ["x"], "node_groups": [group]})
    nodes = [plan.node(rank, slot=rank % 2) for rank in range(6)]
    filled = [Facts(plan, n, 0, 0, {}).fill(plan.groups[0].node_env["RATE"]) for n in nodes]
    assert filled == ["1/0", "1/1", "2/0", "2/1", "3/0", "3/1"]
    with pytest.raises(LookupError):
        Facts(plan, plan.nodes[0], 0, 0, {}).fill("${param.other}")


def test_a_plan_is_stored_without_expanding_the_array(plan_of: PlanOf) -> None:
    rows = [{"x": number, "y": "a"} for number in range(3)]
    array = {"rows": rows, "parameters": {"lr": "0.1,1", "s": "0..9"}}
    plan = plan_of({"name": "demo", "command": ["x"], "array": array})
    data = plan.to_json()["parameters"]
    assert data == {
        "group": "workers",
        "names": ("x", "y", "lr", "s"),
        "grid": {"lr": "0.1,1", "s": "0..9"},
        "rows": '["x","y"]\n["0","a"]\n["1","a"]\n["2","a"]',
        "sample": None,
        "seed": 0,
    }
    stored = RunPlan.from_json(plan.to_json()).parameters
    assert stored is not None
    assert stored.values(59) == {"x": "2", "y": "a", "lr": "1", "s": "9"}
