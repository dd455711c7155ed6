"""Overriding a setting has the same result as writing it into the Job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from muster.spec.decode import names
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.origins import Origin
from muster.spec.override_flags import changes_from_flags
from muster.spec.override_models import OF_THE_JOB, GroupOverrides, RunOverrides
from muster.spec.overrides import overrides_from_mapping
from muster.spec.partial_overrides import with_items
from muster.spec.reader import parse_spec
from muster.spec.resolve import merge, setting_value

COUNT = st.integers(1, 4)
TIME = st.sampled_from(["30s", "5m", "2h", 90])
WORDS = st.sampled_from(["run", "python other.py --fast", ["sh", "-c", "a | b"]])
ENV = st.dictionaries(st.sampled_from(["A", "B", "C"]), st.sampled_from(["x", "", "1.10"]))
MOUNTS = st.lists(st.sampled_from([{"source": "/m0"}, {"source": "/m1", "path": "in"}]), max_size=2)
PROBE = st.sampled_from([{"tcp": 80, "period": 2}, {"exec": "true"}, {"file": "/x", "tcp": 1}, {}])
RESOURCES = st.sampled_from([{"cpus": 2}, {"memory": "1GiB", "gpus": 1}])
RULES = [[{"action": "fail", "exit_codes": 2}], [{"action": "restart_run", "groups": ["b"]}]]
FAILURE = st.sampled_from([{"max_restarts": 2}, {"rules": RULES[0]}, {"rules": RULES[1]}])
GROUP: dict[str, st.SearchStrategy[Any]] = {
    "nodes": COUNT,
    "replicas": COUNT,
    "max_replicas": COUNT,
    "command": WORDS,
    "args": WORDS,
    "working_dir": st.sampled_from(["src", "../x"]),
    "node_args": WORDS,
    "env": ENV,
    "resources": RESOURCES,
    "shape": st.just("local"),
    "slurm": st.sampled_from([{"partition": "gpu"}, {"time": 90, "extra": ["--nice"]}]),
    "kubernetes": st.sampled_from(
        [
            {"priority_class": "high", "pod_log": False},
            {"topology": {"required": "rack"}, "resources": {"rdma/ib": 1}},
        ]
    ),
    "image": st.just("img"),
    "container": st.sampled_from([{"user": "1000"}, {"pull": "never", "shm_size": 4096}]),
    "mounts": MOUNTS,
    "startup_probe": PROBE,
    "liveness_probe": PROBE,
    "after_start": WORDS,
    "before_stop": WORDS,
    "min_success": st.integers(0, 3),
    "array": st.sampled_from([{"lr": [0.1, 0.2]}, {"parameters": {"a": "0..3"}, "sample": 2}]),
    "parallelism": COUNT,
    "max_failed": st.integers(0, 2),
    "total_retries": st.integers(0, 2),
    "early_success": st.sampled_from([[{"count": 1}], [{"replicas": "0"}]]),
    "only": st.sampled_from(["0", "0-1,3", [2, 1]]),
    "depends_on": st.sampled_from([[], [{"group": "b"}], [{"group": "missing"}]]),
    "max_restarts": st.integers(0, 2),
    "retries": st.integers(0, 2),
    "timeout": TIME,
    "max_runtime": TIME,
    "preflight": st.sampled_from([{}, {"gpus": False, "command": "true"}, {"bandwidth": "1GiB"}]),
    "ready_timeout": TIME,
    "hang_timeout": TIME,
    "hostname": st.sampled_from(["h-${rank}", "same"]),
    "node_env": ENV,
}
RUN: dict[str, st.SearchStrategy[Any]] = {
    **{
        name: GROUP[name]
        for name in (
            *("nodes", "command", "args", "working_dir", "env", "resources", "shape", "slurm"),
            *("kubernetes", "image", "container", "mounts", "preflight"),
            *("startup_probe", "liveness_probe", "after_start", "before_stop"),
            *("min_success", "ready_timeout", "hang_timeout"),
            *("replicas", "array", "parallelism", "max_failed", "only", "retries"),
        )
    },
    "startup": st.sampled_from(["parallel", "in_order"]),
    "engine": st.sampled_from(["local", "mine"]),
    "network": st.sampled_from(["shared", "cluster", "isolated"]),
    "max_runtime": TIME,
    "grace_period": TIME,
    "attempt_timeout": TIME,
    "success": st.sampled_from([{"when": "any"}, {"groups": ["missing"]}, {"others": "wait"}]),
    "failure": FAILURE,
    "checkpoint": st.sampled_from([{}, {"signal": "SIGUSR2", "grace": 5}]),
    "suspend": st.booleans(),
    "processes_per_node": COUNT,
    "framework_options": st.sampled_from([{}, {"threads": 2}]),
    "logging": st.sampled_from([{"enabled": False}, {"directory": "/logs"}]),
    "keep_attempts": COUNT,
    "ttl_after_finished": TIME,
    "subdomain": st.just("lab"),
    "namespace": st.just("team"),
    "kueue": st.sampled_from([{"queue": "team"}, {"queue": "team", "priority": "high"}]),
    "clean_env": st.booleans(),
    "tags": ENV,
    "notify": st.dictionaries(
        st.sampled_from(["chat", "mail"]), st.sampled_from(["ended", "failed", "never"])
    ),
}
#: Fields of overrides that a Job does not have.
RUN_ONLY = ("max_restarts", "run_name", "after", "node_groups")


def test_every_field_is_covered() -> None:
    assert {*RUN, *RUN_ONLY} == set(names(RunOverrides))
    assert set(GROUP) == set(names(GroupOverrides))


def test_a_run_may_override_everything_that_does_not_define_the_job() -> None:
    only_here = {*RUN_ONLY}
    assert set(names(JobSpec)) - set(names(RunOverrides)) == set(OF_THE_JOB)
    assert set(names(RunOverrides)) - set(names(JobSpec)) == only_here - {"node_groups"}
    kept = {"name", "extra_containers", "job_metadata", "pod_metadata"}
    assert set(names(NodeGroup)) - set(names(GroupOverrides)) == kept


def spec_of(job: dict[str, Any], overrides: dict[str, Any]) -> JobSpec:
    """The run's spec, before rules between fields are checked."""
    merged, problems = merge(
        parse_spec({"name": "demo", **job}).spec, overrides_from_mapping(overrides)
    )
    assert problems == []
    data = to_builtins(merged.spec)
    for path in merged.origins:
        setting_value(data, path)  # each path exists
    return merged.spec


def some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


def written_with(level: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """A job or group with the overrides written into it."""
    both = {**level, **overrides}
    for name in ("env", "node_env", "framework_options", "tags", "notify"):
        if name in level and name in overrides:
            both[name] = {**level[name], **overrides[name]}
    if {"resources", "shape"} & set(overrides):
        for name in {"resources", "shape"} - set(overrides):
            both.pop(name, None)
    return both


@given(some(RUN), some(RUN))
def test_a_run_of_a_job_with_nodes(job: dict[str, Any], run: dict[str, Any]) -> None:
    job = {"command": "x", **job}
    if "max_runtime" in run and "attempt_timeout" not in run:
        job.pop("attempt_timeout", None)  # a longer one is dropped; see test_resolve
    assert spec_of(job, run) == spec_of(written_with(job, run), {})


@given(some(GROUP), some(GROUP))
def test_a_run_that_overrides_a_group(group: dict[str, Any], run: dict[str, Any]) -> None:
    job = {"command": "x", "args": "y", "env": {"A": "job", "Z": "job"}, "shape": "local"}
    other = {"name": "b", "args": "own"}

    def of(level: dict[str, Any]) -> dict[str, Any]:
        return {**job, "node_groups": [{"name": "a", **level}, other]}

    assert spec_of(of(group), {"node_groups": {"a": run}}) == spec_of(
        of(written_with(group, run)), {}
    )


OF_ALL = ("command", "args", "image", "ready_timeout", "hang_timeout", "mounts", "resources")


@given(some({name: RUN[name] for name in OF_ALL}), some(GROUP))
def test_run_level_overrides_take_precedence_over_groups(
    run: dict[str, Any], group: dict[str, Any]
) -> None:
    job = {"command": "x", "mounts": [{"source": "/job"}]}
    bare = {name: value for name, value in group.items() if name not in run}
    if "resources" in run:
        bare.pop("shape", None)
    expected = spec_of({**job, **run, "node_groups": [{"name": "a", **bare}]}, {})
    made = spec_of({**job, "node_groups": [{"name": "a", **group}]}, run)
    assert made == expected


RECORDS: list[tuple[str, dict[str, Any]]] = [
    ("resources", {"cpus": 2, "memory": 1 << 30, "gpus": 1}),
    ("startup_probe", {"tcp": 80, "http": "/ok", "period": 3, "threshold": 7}),
    ("logging", {"directory": "/logs"}),
    ("success", {"when": "any", "others": "wait"}),
    ("checkpoint", {"signal": "SIGUSR2", "grace": 7}),
    ("array", {"parameters": {"lr": "0.1,0.2"}, "sample": 2, "sample_seed": 7}),
]


@given(st.sampled_from(RECORDS), st.data())
def test_one_field_of_a_record(record: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    """`--set startup_probe.period=3` changes the period, and no other field of the probe."""
    name, whole = record
    inside = data.draw(st.sampled_from(sorted(whole)))
    job = {"command": "x", name: {k: v for k, v in whole.items() if k != inside}}
    spec = parse_spec({"name": "demo", **job}).spec
    changes = with_items(changes_from_flags(sets=[f"{name}.{inside}={whole[inside]}"]), spec)
    made = merge(spec, changes.require_valid())[0].spec
    assert made == spec_of({**job, name: whole}, {})


def parts(job: dict[str, Any], *sets: str) -> JobSpec:
    spec = parse_spec({"name": "demo", "command": "x", **job}).spec
    return merge(spec, with_items(changes_from_flags(sets=sets), spec).require_valid())[0].spec


def test_nested_fields_of_records() -> None:
    failure = {"max_restarts": 3, "backoff": {"initial": 5, "factor": 3}}
    made = parts({"failure": failure}, "failure.backoff.initial=7", "failure.strategy=recreate")
    assert (made.failure.max_restarts, made.failure.strategy) == (3, "recreate")
    assert (made.failure.backoff.initial, made.failure.backoff.factor) == (7, 3)


GROUPS = [
    {"name": "a", "resources": {"cpus": 2, "memory": "1GiB"}},
    {"name": "b", "shape": "BM.GPU4.8"},
    {"name": "c"},
]
JOB = {"resources": {"gpus": 4}, "node_groups": GROUPS}


def resources_of(spec: JobSpec) -> list[tuple[Any, ...]]:
    found = []
    for group in spec.node_groups:
        resources = group.resources
        values = (
            (resources.cpus, resources.memory, resources.gpus) if resources else (None, None, None)
        )
        found.append((*values, group.shape))
    return found


GIB = 1 << 30


def test_a_field_of_resources_for_the_whole_run() -> None:
    """Each group keeps its other resources and its shape."""
    assert resources_of(parts(JOB, "resources.cpus=1")) == [
        (1, GIB, 0, None),
        (1, None, 0, "BM.GPU4.8"),
        (1, None, 4, None),
    ]


def test_fields_of_resources_for_the_run_and_for_groups() -> None:
    sets = ["resources.cpus=1", "node_groups.a.resources.memory=2GiB", "node_groups[2].shape=local"]
    assert resources_of(parts(JOB, *sets)) == [
        (1, 2 * GIB, 0, None),
        (1, None, 0, "BM.GPU4.8"),
        (None, None, None, "local"),
    ]
    sets = ["resources={cpus: 8}", "node_groups[0].resources.memory=2GiB"]
    assert resources_of(parts(JOB, *sets))[0] == (8, 2 * GIB, 0, None)
    sets = ["shape=local", "resources.cpus=2"]
    assert resources_of(parts(JOB, *sets)) == [(2, None, 0, "local")] * 3
    assert resources_of(parts({"nodes": 2, "shape": "local"}, "resources.cpus=1")) == [
        (1, None, 0, "local")
    ]


def test_a_record_given_whole_and_in_part() -> None:
    """In the order of the command line: a whole record replaces earlier parts."""
    job = {"resources": {"gpus": 4}}
    assert resources_of(parts(job, "resources={cpus: 2}", "resources.memory=1GiB")) == [
        (2, GIB, 0, None)
    ]
    assert resources_of(parts(job, "resources.memory=1GiB", "resources={cpus: 2}")) == [
        (2, None, 0, None)
    ]


def origins(job: dict[str, Any], *sets: str) -> dict[str, Origin]:
    spec = parse_spec({"name": "demo", "command": "x", **job}).spec
    return dict(
        merge(spec, with_items(changes_from_flags(sets=sets), spec).require_valid())[0].origins
    )


def test_origins_of_the_parts_of_a_policy() -> None:
    """Parts of a policy that a run does not change are the Job's."""
    job = {"failure": {"max_restarts": 3, "strategy": "recreate", "rules": RULES[0]}}
    found = origins(job, "failure.strategy=in_place", "success.when=any", "startup=in_order")
    values = {
        path: origin for path, origin in found.items() if path[:4] in ("fail", "succ", "star")
    }
    assert values == {
        "startup": "override",
        "success.when": "override",
        "failure.max_restarts": "job",
        "failure.strategy": "override",
        "failure.rules[rule-1].action": "job",
        "failure.rules[rule-1].exit_codes": "job",
    }
    found = origins(job, "failure={max_restarts: 3}")
    assert found["failure.max_restarts"] == "job"
    assert found["failure.strategy"] == "override", "back at its default"
    assert not [path for path in found if "rules" in path]


def test_a_command_replaces_the_entry_point() -> None:
    job = {"command": None, "artifact": ".", "entrypoint": "train.py"}
    made = parts(job, "command=python eval.py")
    assert (made.entrypoint, made.node_groups[0].command) == (None, ("python", "eval.py"))
    assert "entrypoint" not in origins(job, "command=python eval.py")
    job = {**job, "node_groups": [{"name": "a"}, {"name": "b"}]}
    made = parts(job, "node_groups.b.command=python eval.py")
    assert made.entrypoint == "train.py"
    assert [group.command for group in made.node_groups] == [None, ("python", "eval.py")]


@pytest.mark.parametrize("name", ["nodes", "startup_probe", "min_success"])
def test_settings_of_one_group_where_there_are_several(name: str) -> None:
    value = {"startup_probe": {"tcp": 1}}.get(name, 1)
    job = parse_spec({"name": "demo", "command": "x", "node_groups": GROUPS}).spec
    (problem,) = merge(job, overrides_from_mapping({name: value}))[1]
    assert problem.path == name
    assert problem.message == "the job has the groups a, b, c"
    assert problem.hint.startswith("name the group: --")


def test_a_shape_keeps_the_disk() -> None:
    job = {"resources": {"cpus": 1, "disk": "1GiB"}}
    (group,) = parts(job, "shape=local").node_groups
    assert group.shape == "local"
    assert group.resources is not None
    assert (group.resources.cpus, group.resources.disk) == (None, GIB)
