"""Specs as frameworks arrange them: main nodes, success, replacement."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.plan.arrange import Arranged, arrange
from muster.spec.models import JobSpec
from muster.spec.overrides import overrides_from_mapping
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve

Data = dict[str, Any]


def spec_of(data: Data) -> JobSpec:
    fields = {"name": "demo", "framework": "dask", "command": ["x"], **data}
    return resolve(spec_from_mapping(fields), overrides_from_mapping({})).spec


def arranged(**data: Any) -> Arranged:
    return arrange(spec_of(data))


def sizes(spec: JobSpec) -> dict[str, int]:
    return {group.name: group.replicas * group.nodes for group in spec.node_groups}


def group(name: str, nodes: int = 1, **more: Any) -> Data:
    return {"name": name, "nodes": nodes, **more}


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"nodes": 1}, {"workers": 1}),
        ({"nodes": 3}, {"main": 1, "workers": 2}),
        ({"nodes": 3, "framework": "pytorch"}, {"workers": 3}),
        ({"node_groups": [group("a")]}, {"a": 1}),
        ({"node_groups": [group("a"), group("b", 2)]}, {"a": 1, "b": 2}),
        ({"node_groups": [group("a", 2), group("b", 2)]}, {"main": 1, "a": 1, "b": 2}),
        ({"node_groups": [group("main"), group("b", 2)]}, {"main": 1, "b": 2}),
        ({"node_groups": [group("a"), group("b", replicas=3)]}, {"a": 1, "b": 3}),
    ],
)
def test_a_framework_gets_its_own_main_node(data: Data, found: dict[str, int]) -> None:
    assert sizes(arranged(**data).spec) == found


def test_both_parts_of_a_split_group_keep_its_settings() -> None:
    data = group("a", 3, env={"X": "1"}, ready_timeout="1m", hostname="h-${rank}", args=["y"])
    main, rest = arranged(node_groups=[data]).spec.node_groups
    assert (main.name, main.nodes, rest.name, rest.nodes) == ("main", 1, "a", 2)
    for part in (main, rest):
        assert (part.env, part.ready_timeout, part.args) == ({"X": "1"}, 60.0, ("y",))
        assert part.hostname == "h-${rank}"


def test_references_to_a_split_group_include_both_parts() -> None:
    spec = arranged(
        node_groups=[group("a", 3), group("b", depends_on=[{"group": "a"}])],
        failure={
            "max_restarts": 1,
            "rules": [
                {"action": "fail", "groups": ["a"], "exit_codes": [2]},
                {"action": "fail", "groups": ["b", "a"]},
                {"action": "fail"},
            ],
        },
    ).spec
    assert [dep.group for dep in spec.node_groups[2].depends_on] == ["main", "a"]
    assert [rule.groups for rule in spec.failure.rules[:3]] == [
        ("main", "a"),
        ("b", "main", "a"),
        (),
    ]


# --- success


@pytest.mark.parametrize(
    ("data", "groups"),
    [
        ({"nodes": 1}, ()),
        ({"nodes": 3}, ("main",)),
        ({"node_groups": [group("a"), group("b", 2)]}, ("a",)),
        ({"nodes": 3, "framework": "pytorch"}, ()),
        ({"nodes": 3, "success": {"groups": ["workers"]}}, ("main",)),
        ({"nodes": 3, "framework": "pytorch", "success": {"groups": ["workers"]}}, ("workers",)),
        ({"node_groups": [group("a"), group("b", 2)], "success": {"groups": ["a"]}}, ("a",)),
    ],
)
def test_groups_that_run_the_program_decide_success(data: Data, groups: tuple[str, ...]) -> None:
    assert arranged(**data).spec.success.groups == groups


def test_groups_that_only_serve_are_not_awaited() -> None:
    later = {"group": "a", "status": "complete"}
    groups = [group("a", 3), group("b", depends_on=[later])]
    *_, b = arranged(node_groups=groups).spec.node_groups
    assert [(dep.group, dep.status) for dep in b.depends_on] == [("main", "complete")]


# --- replacement


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        ({"failure": {"max_restarts": 1}}, [("replace-node", "restart_node", ("workers",))]),
        ({"failure": {}}, []),
        ({"failure": {"max_restarts": 1, "action": "restart_run"}}, []),
        ({"failure": {"max_restarts": 1}, "nodes": 1}, []),
        ({"failure": {"max_restarts": 1}, "framework": "pytorch"}, []),
        (
            {"failure": {"max_restarts": 1, "rules": [{"name": "mine", "action": "fail"}]}},
            [("mine", "fail", ()), ("replace-node", "restart_node", ("workers",))],
        ),
        (
            {
                "failure": {
                    "max_restarts": 1,
                    "rules": [{"name": "others-go-on", "action": "restart_run"}],
                }
            },
            [("others-go-on", "restart_run", ())],
        ),
    ],
)
def test_replaceable_nodes_are_replaced(data: Data, rules: list[Any]) -> None:
    found = arranged(**{"nodes": 3, **data}).spec.failure.rules
    assert [(rule.name, rule.action, rule.groups) for rule in found] == rules


def test_nodes_whose_failure_ends_all_are_replaced_only_if_lost() -> None:
    data: Data = {
        "framework": "pytorch",
        "framework_options": {"elastic": True},
        "nodes": 3,
        "failure": {"max_restarts": 1},
    }
    preempted, lost, killed = arranged(**data).spec.failure.rules
    assert {preempted.action, lost.action, killed.action} == {"restart_node"}
    assert (preempted.reasons, preempted.count) == (("preempted",), False)
    assert (lost.groups, killed.groups) == (("workers",), ("workers",))
    assert ("node_lost" in lost.reasons, "exit" in lost.reasons) == (True, False)
    assert "SIGKILL" in killed.signals
    mine = {"max_restarts": 1, "rules": [{"name": "others-go-on", "action": "fail"}]}
    assert len(arranged(**{**data, "failure": mine}).spec.failure.rules) == 1


# --- refused settings


SERVES = "group b only serves the others: it ends when the run does"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"node_groups": [group("a", replicas=2)]},
            "node_groups[a].replicas: dask's first node has its own role; "
            "it cannot be one of many (put a group with one node before it)",
        ),
        (
            {"node_groups": [group("a", max_replicas=2)]},
            "node_groups[a].replicas: dask's first node has its own role; "
            "it cannot be one of many (put a group with one node before it)",
        ),
        (
            {"node_groups": [group("a", 2), group("main")]},
            "node_groups[a].nodes: dask's first node has its own role "
            "(write group main first, with one node)",
        ),
        (
            {"node_groups": [group("a"), group("b", command=["y"])]},
            "node_groups[b].command: dask sets what this group runs (leave it out)",
        ),
        (
            {"node_groups": [group("a"), group("b", hang_timeout=5)]},
            "node_groups[b].hang_timeout: this group only serves the others, and may write no "
            "output (leave it out)",
        ),
        (
            {"node_groups": [group("a"), group("b", min_success=1)]},
            "node_groups[b].min_success: this group only serves the others: it ends when the run "
            "does (leave it out)",
        ),
        (
            {"node_groups": [group("a"), group("b")], "success": {"groups": ["a", "b"]}},
            f"success.groups: {SERVES} (leave it out)",
        ),
        (
            {
                "node_groups": [
                    group("a"),
                    group("b"),
                    group("c", depends_on=[{"group": "b", "status": "complete"}]),
                ]
            },
            f"node_groups[c].depends_on: {SERVES} (leave it out)",
        ),
        ({"framework": "dusk"}, "framework: no framework named 'dusk' (did you mean \"dask\"?"),
        ({"framework": "x" * 999}, f"framework: no framework named '{'x' * 55}...'"),
        (
            {"framework_options": {"treads": 1}},
            'framework_options.treads: unknown field (did you mean "threads"?)',
        ),
        ({"framework": "pytorch", "framework_options": {"x": 1}}, "framework_options.x"),
    ],
)
def test_settings_that_are_refused(data: Data, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        arranged(**data)
    (problem,) = refused.value.problems
    assert str(problem).startswith(message)


# --- arranging twice


NAMES = ("main", "a", "b", "c")


@st.composite
def specs(draw: st.DrawFn) -> Data:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    some = st.lists(st.sampled_from(names), unique=True)
    groups = []
    for number, name in enumerate(names):
        before = names[:number]
        status = st.sampled_from(["ready", "complete"])
        depends = st.builds(lambda n, s: {"group": n, "status": s}, st.sampled_from(names), status)
        groups.append(
            {
                "name": name,
                "nodes": draw(st.integers(1, 3)),
                "replicas": draw(st.integers(1, 2)),
                "depends_on": [
                    d for d in draw(st.lists(depends, max_size=2)) if d["group"] in before
                ],
            }
        )
    actions = st.sampled_from(["fail", "restart_run", "restart_node"])
    rules = draw(
        st.lists(st.builds(lambda a, g: {"action": a, "groups": g}, actions, some), max_size=2)
    )
    failure = {"max_restarts": draw(st.integers(0, 2)), "rules": rules}
    if draw(st.booleans()):
        failure["action"] = "restart_group"
    return {
        "node_groups": groups,
        "framework": draw(st.sampled_from(["dask", "generic", "pytorch"])),
        "success": {"groups": draw(some)},
        "failure": failure,
    }


@given(specs())
def test_arranging_twice_changes_nothing(data: Data) -> None:
    try:
        spec = spec_of(data)
        once = arrange(spec)
    except InvalidInput:
        return
    assert arrange(once.spec) == once
    assert sum(sizes(once.spec).values()) == sum(sizes(spec).values())
    names = set(sizes(once.spec))
    for part in (once.spec.success, *once.spec.failure.rules):
        assert set(part.groups) <= names
    if once.spec.success.groups:
        assert all(once.role(name).program for name in once.spec.success.groups)


def test_a_probe_of_nodes_that_only_serve_is_refused() -> None:
    probe = {"tcp": 8787}
    with pytest.raises(InvalidInput) as caught:
        arranged(node_groups=[group("main"), group("w", 2, startup_probe=probe)])
    (problem,) = caught.value.problems
    assert problem.path == "node_groups[w].startup_probe"
    arranged(node_groups=[group("all", 3, startup_probe=probe)])


def array(name: str = "a", **more: Any) -> Data:
    return {"name": name, "array": {"lr": "1,2,3"}, **more}


@pytest.mark.parametrize("framework", ["generic", "pytorch", "dask", "ray", "mpi"])
def test_a_framework_sees_one_replica_of_an_array(framework: str) -> None:
    one = arranged(framework=framework, node_groups=[group("a")])
    many = arranged(framework=framework, node_groups=[array()])
    assert many.setup == one.setup
    assert sizes(many.spec) == {"a": 3}


def test_an_array_of_clusters() -> None:
    one = arranged(framework="pytorch", node_groups=[group("a", 2)])
    for fields in (array(nodes=2), group("a", 2, replicas=9, parallelism=4)):
        many = arranged(framework="pytorch", node_groups=[fields])
        assert many.setup == one.setup
    assert many.setup.env["WORLD_SIZE"] == "2"


@pytest.mark.parametrize(
    ("framework", "groups", "problem"),
    [
        (
            "dask",
            [array(nodes=2)],
            "node_groups[a].nodes: dask's first node has its own role, so each replica can have "
            "one node (write nodes: 1, or start a run for each parameter set)",
        ),
        (
            "pytorch",
            [array(), group("b")],
            "node_groups[b]: with pytorch, each replica of the array a is a cluster of its own "
            "(leave out group b, or use the framework generic)",
        ),
    ],
)
def test_arrays_that_are_no_clusters(framework: str, groups: list[Data], problem: str) -> None:
    with pytest.raises(InvalidInput) as error:
        arranged(framework=framework, node_groups=groups)
    assert str(error.value) == problem


def test_groups_beside_an_array_are_a_cluster_of_their_own() -> None:
    groups = [group("server", 2), array(nodes=3), group("monitor")]
    made = arranged(framework="generic", node_groups=groups)
    assert made.setup.env["WORLD_SIZE"] == "3"
    assert made.role("a").env["WORLD_SIZE"] == "3"
    assert made.role("server").env == {}
    alone = arranged(framework="generic", node_groups=groups[:2])
    sizes_ = alone.setup.env["WORLD_SIZE"], alone.role("a").env["WORLD_SIZE"]
    assert sizes_ == ("2", "3")
