"""Rules for arrays."""

from __future__ import annotations

from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

TWO: dict[str, Any] = {"lr": "1,2"}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"array": {}}, "array: has no parameters (write {lr: [0.1, 0.01]})"),
        (
            {"array": {"sample": 2}},
            "array.sample: there is no array to draw from (add --array lr=0.1,0.01, or parameters",
        ),
        ({"array": {"sample_seed": 2}}, "array.sample_seed: there is no array to draw from"),
        (
            {"array": {"parameters": TWO, "sample_seed": 5}},
            "array.sample_seed: is the seed of a sample, and there is none (add sample (--sample",
        ),
        (
            {"sample": 2},
            "sample: belongs to an array (write array: {parameters: ..., sample: ...})",
        ),
        ({"array": {"lr": []}}, "array.lr: has no values"),
        ({"array": {"l r": "1"}}, "array.l r: 'l r' is not a valid name"),
        (
            {"array": {"a-b": "1", "a_b": "2"}},
            "array.a_b: a_b and a-b would both be MUSTER_PARAM_A_B",
        ),
        (
            {"array": {"rows": [{"lr": 1}], "parameters": TWO}},
            "array.lr: lr is also a parameter of rows (give it once)",
        ),
        (
            {"array": {"a": "0..999999", "b": "1,2"}},
            "array: 2,000,000 parameter sets, 1,000,000 are allowed",
        ),
        (
            {"array": {"parameters": {"a": "uniform(0,1)"}}},
            "array.a: uniform(0,1) needs the number of sets to draw",
        ),
        (
            {"array": {"parameters": {"password": "choice(hunter2,x)"}}},
            "array.password: *** needs the number of sets to draw",
        ),
        (
            {"array": {"parameters": TWO, "sample": 3}},
            "array.sample: 3 sets cannot be drawn from 2 (at most 2)",
        ),
        (
            {"array": {"parameters": dict.fromkeys("abcd", "0..999999999"), "sample": 3}},
            "array.sample: a sample of 1,000,000,000,000,000,000,000,000,000,000,000,000 ",
        ),
        ({"array": TWO, "replicas": 3}, "replicas: 3 differs from the number of parameter sets, 2"),
        ({"array": TWO, "only": "1,2"}, "only: there is no replica 2: the array has 2"),
        (
            {"replicas": 3, "only": "1"},
            "only: selects replicas of an array; this job has none (add ",
        ),
        ({"array": TWO, "max_failed": 3}, "max_failed: 3 replicas may fail, but there are 2"),
        (
            {"array": TWO, "min_success": 3},
            "min_success: 3 replicas must succeed, but there are 2 (at most 2)",
        ),
        (
            {"array": {"a": "1"}, "max_failed": 2},
            "max_failed: 2 replicas may fail, but there is only 1 (at most 1)",
        ),
        ({"array": TWO, "parallelism": 0}, "parallelism: must be at least 1, not 0"),
        (
            {"replicas": 1_000_001, "parallelism": 2},
            "replicas: 1,000,001 replicas, 1,000,000 are allowed",
        ),
        (
            {"replicas": 600_000, "nodes": 2, "parallelism": 2},
            "nodes: 1,200,000 nodes in all replicas, 1,000,000 are allowed",
        ),
        ({"replicas": 100_001}, "nodes: 100,001 nodes in all (a run can have 100,000)"),
        (
            {"array": TWO, "args": ["--x=${param.rl}"]},
            "args[0]: the array has no parameter rl (use lr)",
        ),
        (
            {"array": TWO, "args": ["${param.}"]},
            "args[0]: ${param.} names no parameter (write ${param.lr})",
        ),
        (
            {"array": TWO, "args": ["--lr=${lr}"]},
            "args[0]: ${lr} is not replaced: no shell runs (write ${param.lr})",
        ),
        (
            {"array": TWO, "command": ["x", "${params.lr}"]},
            "command[1]: ${params.lr} is not replaced: no shell runs (write ${param.lr})",
        ),
        (
            {"array": TWO, "command": ["x", "--lr=$MUSTER_PARAM_LR"]},
            "command[1]: $MUSTER_PARAM_LR is not replaced: no shell runs (write ${param.lr})",
        ),
        (
            {"array": TWO, "args": ["${MUSTER_PARAM_LR}"]},
            "args[0]: ${MUSTER_PARAM_LR} is not replaced: no shell runs (write ${param.lr})",
        ),
        (
            {"array": TWO, "command": ["x", "${param.l}"]},
            'command[1]: the array has no parameter l (did you mean "lr"?)',
        ),
        (
            {"array": TWO, "command": ["sh", "-c", "awk '{print ${param.lr}}'"]},
            "command[2]: ${param.lr} is in single quotes: the shell does not expand it (end the "
            "quotes before it: '\"${param.lr}\"')",
        ),
        (
            {"array": TWO, "command": "cat > x <<'END'\n${param.lr}\nEND\n"},
            "command[2]: ${param.lr} is in a here-document whose end is quoted: the shell does not "
            "expand it (remove the quotes of its end)",
        ),
        (
            {"node_groups": [{"name": "a", "array": TWO, "max_replicas": 2}]},
            "node_groups[0].max_replicas: conflicts with array: an array cannot be scaled",
        ),
        (
            {"node_groups": [{"name": "a", "parallelism": 2, "max_replicas": 2}]},
            "node_groups[0].max_replicas: conflicts with parallelism",
        ),
        (
            {"node_groups": [{"name": "a", "array": TWO}, {"name": "b", "array": TWO}]},
            "node_groups[1].array: group a has an array already",
        ),
        (
            {"node_groups": [{"name": "a", "array": TWO, "node_args": ["${param.x}"]}]},
            "node_groups[0].node_args[0]: no placeholder named ${param.x}",
        ),
        (
            {"node_groups": [{"name": "a", "array": TWO, "node_args": ["${lr}"]}]},
            'node_groups[0].node_args[0]: no placeholder named ${lr} (did you mean "param.lr"?)',
        ),
        (
            {"node_groups": [{"name": "a", "node_env": {"X": "${param.x}"}}]},
            "node_groups[0].node_env.X: ${param.x} is a parameter, and the group has no array",
        ),
        ({"node_groups": [{"name": "a"}], "parallelism": 2}, "parallelism: conflicts with node_g"),
    ],
)
def test_bad_arrays(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        spec_from_mapping({"name": "demo", "command": ["true"], **fields})
    (found,) = error.value.problems
    assert str(found).startswith(problem)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"total_retries": 1, "retries": 1},
            "total_retries: applies to an array; this job has none (",
        ),
        (
            {"early_success": [{"count": 1}]},
            "early_success: applies to an array; this job has none (",
        ),
        (
            {"parallelism": 2, "early_success": [{"replicas": 0}, {}]},
            "early_success[1]: names neither replicas nor their count",
        ),
        (
            {"parallelism": 2, "early_success": [{"replicas": "0-3"}]},
            "early_success[0].replicas: there is no replica 3: the array has 3",
        ),
        (
            {"array": TWO, "early_success": [{"replicas": "1", "count": 2}]},
            "early_success[0].count: 2 replicas must succeed, of 1 (at most 1)",
        ),
        (
            {"array": TWO, "early_success": [{"count": 3}]},
            "early_success[0].count: 3 replicas must succeed, of 2 (at most 2)",
        ),
    ],
)
def test_bad_limits_of_all_replicas(fields: dict[str, Any], problem: str) -> None:
    size = {} if "array" in fields else {"replicas": 3}
    group = {"name": "a", **size, **fields}
    with pytest.raises(InvalidInput) as error:
        spec_from_mapping({"name": "demo", "command": ["true"], "node_groups": [group]})
    (found,) = error.value.problems
    assert str(found).startswith(f"node_groups[0].{problem}")


@pytest.mark.parametrize(
    "fields",
    [
        {"array": {"lr": "0..999999"}},
        {"array": {"lr": "0..199999"}, "nodes": 2},
        {"array": TWO, "replicas": 2, "parallelism": 5, "max_failed": 2, "only": "0-1"},
        {"array": TWO, "args": ["--x=${param.lr}", "$${param.y}"]},
        {"array": TWO, "args": ["$HOME", "${lr2}", "$${lr}", "f(${lr})", "$MUSTER_PARAM_X"]},
        {"array": TWO, "command": ["nice", "sh", "-c", "echo", "${lr}", "$MUSTER_PARAM_LR"]},
        {
            "array": TWO,
            "command": ["sh", "-c", "'$${param.lr}' \"it's ${param.lr}\"", "'${param.lr}'"],
        },
        {"args": ["$${param.x}"]},
        {"replicas": 200_000, "parallelism": 8, "only": "199999"},
        {"array": {"parameters": {"a": "uniform(0,1)", "b": "1,2"}, "sample": 50}},
        {"node_groups": [{"name": "a", "array": TWO, "node_args": ["${param.lr}"]}]},
    ],
)
def test_good_arrays(fields: dict[str, Any]) -> None:
    spec = spec_from_mapping({"name": "demo", "command": ["true"], **fields})
    resolve(spec, RunOverrides())


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"args": ["${param.x}"]},
            "node_groups[0].args[0]: ${param.x} is the parameter of an array, and there is none "
            "(add --array x=...; $${param.x} is the text)",
        ),
        (
            {"command": ["sh", "-c", "echo ${param.x}"]},
            "node_groups[0].command[2]: ${param.x} is the parameter of an array",
        ),
        (
            {"array": TWO, "env": {"X": "${param.lr}"}},
            "node_groups[0].env.X: ${param.lr} is not replaced in env (use node_env, or "
            "$MUSTER_PARAM_LR in the program)",
        ),
    ],
)
def test_placeholders_that_no_array_fills(fields: dict[str, Any], problem: str) -> None:
    spec = spec_from_mapping({"name": "demo", "command": ["true"], **fields})
    with pytest.raises(InvalidInput) as error:
        resolve(spec, RunOverrides())
    (found,) = error.value.problems
    assert str(found).startswith(problem)


@pytest.mark.parametrize(
    ("fields", "run", "notes"),
    [
        (
            {"array": {"lr": "1,2", "seed": "3"}},
            {"array": {"momentum": "0.5"}},
            (
                "the array replaces the job's, without its lr, seed (--set array.momentum=... "
                "keeps them)",
            ),
        ),
        (
            {"array": {"lr": "1,2"}},
            {"array": [{"momentum": "0.5"}]},
            ("the array replaces the job's, without its lr",),
        ),
        ({"array": TWO}, {"array": {"lr": "3"}}, ()),
        ({"array": TWO}, {}, ()),
        (
            {"nodes": 3},
            {"parallelism": 2},
            (
                "parallelism has no effect: there is 1 replica, of 3 nodes (--replicas N or "
                "--array for more)",
            ),
        ),
        ({"nodes": 3, "replicas": 2}, {"parallelism": 2}, ()),
    ],
)
def test_settings_without_effect_are_noted(
    fields: dict[str, Any], run: dict[str, Any], notes: tuple[str, ...]
) -> None:
    spec = spec_from_mapping({"name": "demo", "command": ["true"], **fields})
    assert resolve(spec, overrides_from_mapping(run)).notes == notes


def test_the_number_of_sets_is_that_of_the_replicas() -> None:
    spec = spec_from_mapping({"name": "demo", "command": ["true"]})
    run = overrides_from_mapping({"array": {"lr": [0.1, 0.01], "seed": range(100)}})
    (group,) = resolve(spec, run).spec.node_groups
    assert (group.replicas, group.is_array) == (200, True)
    again = resolve(resolve(spec, run).spec, overrides_from_mapping({"only": "3"}))
    assert again.spec.node_groups[0].replicas == 200


def test_a_group_with_a_parallelism_is_an_array() -> None:
    fields = {"name": "demo", "command": ["true"], "replicas": 4}
    for parallelism, is_array in ((None, False), (4, True), (3, True)):
        spec = spec_from_mapping({**fields, "parallelism": parallelism})
        (group,) = resolve(spec, RunOverrides()).spec.node_groups
        assert group.is_array == is_array
