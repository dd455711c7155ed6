from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from muster.errors import InvalidInput
from muster.spec.override_flags import overrides_from_flags
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import Resolved, resolve, setting_value, spec_from_json

JOB: dict[str, Any] = {
    "command": "run",
    "args": "job",
    "env": {"A": "job", "B": "job", "C": "job"},
    "resources": {"cpus": 1},
    "mounts": [{"source": "/m0"}],
    "node_groups": [
        {"name": "plain"},
        {
            "name": "own",
            "args": "group",
            "env": {"B": "group", "D": "group"},
            "shape": "local",
            "mounts": [{"source": "/m1"}],
        },
    ],
}


def resolved(overrides: dict[str, Any], job: dict[str, Any] | None = None) -> Resolved:
    return resolve(spec_from_mapping(job or JOB), overrides_from_mapping(overrides))


@pytest.mark.shows(
    "distributed-jobs/capability-group-infrastructure",
    "distributed-jobs/groups-configured-independently",
    "jobs/job-arguments",
)
def test_groups_inherit_unset_fields() -> None:
    plain, own = resolved({}).spec.node_groups
    assert (plain.command, plain.args) == (("run",), ("job",))
    assert (own.command, own.args) == (("run",), ("group",))
    assert plain.env == {"A": "job", "B": "job", "C": "job"}
    assert own.env == {"A": "job", "B": "group", "C": "job", "D": "group"}
    assert plain.resources is not None
    assert (own.resources, own.shape) == (None, "local")
    assert [m.source for m in own.mounts] == ["/m0", "/m1"]


@pytest.mark.shows("distributed-jobs/capability-override-infrastructure")
def test_an_override_for_the_run_takes_precedence_over_the_job() -> None:
    given = {"args": "run", "env": {"B": "run"}, "resources": {"cpus": 2}, "mounts": []}
    plain, own = resolved(given).spec.node_groups
    for group in (plain, own):
        assert group.args == ("run",)
        assert group.env["B"] == "run"
        assert group.shape is None
        assert group.resources is not None
        assert group.resources.cpus == 2
        assert group.mounts == ()


@pytest.mark.shows("distributed-jobs/capability-override-infrastructure")
def test_an_override_for_a_group_takes_precedence_over_the_run() -> None:
    given = {
        "args": "run",
        "env": {"B": "run", "A": "run"},
        "node_groups": {"own": {"args": "mine", "env": {"B": "mine"}, "replicas": 3}},
    }
    plain, own = resolved(given).spec.node_groups
    assert (plain.args, own.args) == (("run",), ("mine",))
    assert (own.env["A"], own.env["B"]) == ("run", "mine")
    assert (plain.replicas, own.replicas) == (1, 3)


def test_shorthand_is_one_group() -> None:
    job = {"command": "x", "nodes": 3, "startup_probe": {"tcp": 80}, "min_success": 0}
    (group,) = resolved({"nodes": 5}, job).spec.node_groups
    assert (group.name, group.nodes, group.min_success) == ("workers", 5, 0)
    assert group.startup_probe is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"node_groups": {"plan": {"nodes": 2}}},
            "node_groups[plan]: no group named 'plan' (did you mean \"plain\"?)",
        ),
        (
            {"nodes": 3},
            "nodes: the job has the groups plain, own (name the group: --nodes plain=3)",
        ),
        (
            {"env": {"X": "x" * 30000}},
            "node_groups[0].env: 30,013 characters in names and values, 20,000 are allowed",
        ),
    ],
)
def test_invalid_overrides_are_refused(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        resolved(overrides)
    assert message in str(caught.value)


@pytest.mark.shows("cluster-design/run-default-configuration", "jobs/run-overrides")
def test_every_setting_has_its_origin() -> None:
    given = {"max_runtime": 60, "env": {"B": "run"}, "node_groups": {"own": {"nodes": 2}}}
    origins = resolved(given).origins
    assert origins["framework"] == "default"
    assert origins["max_runtime"] == "override"
    assert origins["node_groups[plain].nodes"] == "default"
    assert origins["node_groups[own].nodes"] == "override"
    assert origins["node_groups[own].args"] == "job"
    assert origins["node_groups[own].env.A"] == "job"
    assert origins["node_groups[own].env.B"] == "override"


def test_settings_can_be_looked_up() -> None:
    result = resolved({"node_groups": {"own": {"nodes": 2}}})
    data = to_builtins(result.spec)
    assert setting_value(data, "node_groups[own].nodes") == 2
    assert setting_value(data, "node_groups[own].env.D") == "group"
    for path in result.origins:
        setting_value(data, path)


def test_normal_form_is_stable() -> None:
    once = resolved({}).spec
    again = resolve(spec_from_json(to_builtins(once)), overrides_from_mapping({})).spec
    assert again == once


def test_an_empty_override_is_an_override() -> None:
    result = resolved({"args": [], "mounts": []})
    for group in result.spec.node_groups:
        assert (group.args, group.mounts) == ((), ())
        assert result.origins[f"node_groups[{group.name}].args"] == "override"
        assert result.origins[f"node_groups[{group.name}].mounts"] == "override"


@pytest.mark.shows("distributed-jobs/capability-override-infrastructure")
def test_resources_and_shape_replace_each_other() -> None:
    result = resolved({"shape": "local", "node_groups": {"own": {"resources": {"cpus": 4}}}})
    plain, own = result.spec.node_groups
    assert (plain.resources, plain.shape) == (None, "local")
    assert own.resources is not None
    assert (own.resources.cpus, own.shape) == (4, None)
    assert result.origins["node_groups[plain].shape"] == "override"
    assert result.origins["node_groups[own].resources"] == "override"
    assert "node_groups[own].shape" not in result.origins


def test_fewer_replicas_than_must_succeed_are_refused() -> None:
    job = {"command": "x", "node_groups": [{"name": "w", "replicas": 4, "min_success": 3}]}
    with pytest.raises(InvalidInput, match="3 replicas must succeed, but there are 2"):
        resolved({"node_groups": {"w": {"replicas": 2}}}, job)


POLICIES: dict[str, Any] = {
    "command": "x",
    "ready_timeout": "10m",
    "hang_timeout": "5m",
    "attempt_timeout": "2h",
    "suspend": True,
    "subdomain": "lab",
    "checkpoint": {"grace": "2m"},
    "success": {"others": "wait"},
    "failure": {
        "max_restarts": 3,
        "backoff": {"max": "1m"},
        "rules": [{"action": "fail", "exit_codes": 2}, {"name": "lost", "action": "restart_run"}],
    },
    "node_groups": [
        {"name": "a", "ready_timeout": "1m", "hostname": "a-${rank}", "retries": 2},
        {"name": "b", "depends_on": [{"group": "a"}], "node_env": {"A": "${rank}"}},
    ],
}


def test_times_of_the_job_are_those_of_its_groups() -> None:
    spec = resolved({}, POLICIES).spec
    assert [(g.ready_timeout, g.hang_timeout) for g in spec.node_groups] == [(60, 300), (600, 300)]
    assert (spec.ready_timeout, spec.hang_timeout) == (None, None)
    (group,) = resolved({}, {"command": "x", "nodes": 4, "ready_timeout": 5}).spec.node_groups
    assert (group.nodes, group.ready_timeout) == (4, 5)


def test_policies_are_explained_where_they_differ_from_defaults() -> None:
    result = resolved({}, POLICIES)
    data = to_builtins(result.spec)
    values = {path: setting_value(data, path) for path in result.origins}
    usual = resolved({}, {"command": "x", "node_groups": [{"name": "a"}, {"name": "b"}]}).origins
    assert {path: value for path, value in values.items() if path not in usual} == {
        "attempt_timeout": 7200.0,
        "suspend": True,
        "subdomain": "lab",
        "checkpoint.signal": "SIGUSR1",
        "checkpoint.grace": 120.0,
        "success.others": "wait",
        "failure.max_restarts": 3,
        "failure.backoff.max": 60.0,
        "failure.rules[rule-1].action": "fail",
        "failure.rules[rule-1].exit_codes": (2,),
        "failure.rules[lost].action": "restart_run",
        "node_groups[a].ready_timeout": 60.0,
        "node_groups[a].hang_timeout": 300.0,
        "node_groups[a].retries": 2,
        "node_groups[a].hostname": "a-${rank}",
        "node_groups[b].ready_timeout": 600.0,
        "node_groups[b].hang_timeout": 300.0,
        "node_groups[b].depends_on": ({"group": "a", "status": "ready"},),
        "node_groups[b].node_env.A": "${rank}",
    }
    assert {result.origins[path] for path in values if path not in usual} == {"job"}


def test_a_run_can_override_its_restarts() -> None:
    result = resolved({"max_restarts": 0, "suspend": False}, POLICIES)
    assert (result.spec.failure.max_restarts, result.spec.suspend) == (0, False)
    assert result.spec.failure.backoff.max == 60
    assert result.origins["failure.max_restarts"] == "override"
    assert result.origins["suspend"] == "override"


def test_the_maximum_runtime_can_be_shorter_than_an_attempt() -> None:
    result = resolved({"max_runtime": "1h"}, POLICIES)
    assert (result.spec.max_runtime, result.spec.attempt_timeout) == (3600, None)
    assert "attempt_timeout" not in result.origins
    assert resolved({"max_runtime": "2h"}, POLICIES).spec.attempt_timeout == 7200


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"env": {"A": "1"}}, "node_groups[1].node_env.A: A is also in env"),
        (
            {"logging": {"enabled": False}},
            "node_groups[0].hang_timeout: needs the output, but logging.enabled is false",
        ),
        (
            {"node_groups": {"b": {"replicas": 2}}},
            "node_groups[1].hostname: ranks 1 and 2 would both be named b",
        ),
    ],
)
def test_overrides_must_obey_the_rules_of_policies(overrides: dict[str, Any], message: str) -> None:
    groups = [POLICIES["node_groups"][0], {**POLICIES["node_groups"][1], "hostname": "b"}]
    with pytest.raises(InvalidInput) as caught:
        resolved(overrides, {**POLICIES, "node_groups": groups})
    assert message in str(caught.value)


def test_normal_form_of_policies_is_stable() -> None:
    once = resolved({}, POLICIES).spec
    again = resolve(spec_from_json(to_builtins(once)), overrides_from_mapping({})).spec
    assert again == once


LEVEL = st.dictionaries(st.sampled_from("ABC"), st.sampled_from("12"), max_size=3)


@pytest.mark.shows("distributed-jobs/capability-group-environment")
@given(LEVEL, LEVEL, LEVEL, LEVEL)
def test_env_is_merged_key_by_key(
    job: dict[str, str], group: dict[str, str], run: dict[str, str], own: dict[str, str]
) -> None:
    spec = {"command": "x", "env": job, "node_groups": [{"name": "g", "env": group}]}
    result = resolved({"env": run, "node_groups": {"g": {"env": own}}}, spec)
    assert result.spec.node_groups[0].env == {**job, **group, **run, **own}
    for name in result.spec.node_groups[0].env:
        origin = "override" if name in {**run, **own} else "job"
        assert result.origins[f"node_groups[g].env.{name}"] == origin


def test_a_group_may_be_given_by_its_number() -> None:
    job = spec_from_mapping(JOB)
    overrides = overrides_from_flags(sets=["node_groups[1].nodes=3"])
    assert [group.nodes for group in resolve(job, overrides).spec.node_groups] == [1, 3]
    twice = overrides_from_flags(sets=["node_groups[1].nodes=3", "node_groups.own.nodes=2"])
    with pytest.raises(InvalidInput, match=r"node_groups\[own\]: also given as own"):
        resolve(job, twice)
