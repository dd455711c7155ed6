from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.spec.models import GroupOverrides, Mount, Resources, RunOverrides
from muster.spec.overrides import overrides_from_flags, overrides_from_mapping


@pytest.mark.parametrize(
    ("flags", "overrides"),
    [
        ({}, RunOverrides()),
        ({"nodes": ["4"]}, RunOverrides(nodes=4)),
        ({"nodes": ["a=2"]}, RunOverrides(node_groups={"a": GroupOverrides(nodes=2)})),
        ({"env": ["A=b=c", "E="]}, RunOverrides(env={"A": "b=c", "E": ""})),
        ({"env": ["g:A=1"]}, RunOverrides(node_groups={"g": GroupOverrides(env={"A": "1"})})),
        ({"env": ["HOMEX"]}, RunOverrides(env={"HOMEX": "/h"})),
        ({"max_runtime": "1h"}, RunOverrides(max_runtime=3600.0)),
        ({"args": ["--x", "a b"]}, RunOverrides(args=("--x", "a b"))),
        ({"args": []}, RunOverrides(args=())),
        ({"sets": ["resources.cpus=2"]}, RunOverrides(resources=Resources(cpus=2.0))),
        ({"sets": ["args=[1, x]"]}, RunOverrides(args=("1", "x"))),
        ({"sets": ["env.A=on it"]}, RunOverrides(env={"A": "on it"})),
        (
            {"sets": ["node_groups.a.replicas=8", "node_groups[a].args=x y"]},
            RunOverrides(node_groups={"a": GroupOverrides(replicas=8, args=("x", "y"))}),
        ),
        ({"mounts": ["/data"]}, RunOverrides(mounts=(Mount(source="/data"),))),
        (
            {"mounts": ["/data:/in:ro"]},
            RunOverrides(mounts=(Mount(source="/data", path="/in", read_only=True),)),
        ),
        ({"mounts": ["s3://b/c"]}, RunOverrides(mounts=(Mount(source="s3://b/c"),))),
        (
            {"mounts": ["s3://b/c:/in"]},
            RunOverrides(mounts=(Mount(source="s3://b/c", path="/in"),)),
        ),
        ({"mounts": ["host:/export"]}, RunOverrides(mounts=(Mount(source="host:/export"),))),
    ],
)
def test_flags(flags: dict[str, list[str]], overrides: RunOverrides) -> None:
    assert overrides_from_flags(**flags, environ={"HOMEX": "/h"}) == overrides  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"nodes": ["many"]},
            "--nodes: 'many' is not a number of nodes (write 4 or workers=4)",
        ),
        ({"nodes": ["0"]}, "nodes: must be at least 1, not 0"),
        (
            {"env": ["NOPE"]},
            "--env: NOPE is not set in your environment (write NOPE=VALUE, or set it before)",
        ),
        ({"sets": ["x"]}, "--set: 'x' is not PATH=VALUE (as in resources.cpus=2)"),
        (
            {"sets": ["resorces.cpus=1"]},
            '--set: resorces.cpus: there is no such setting (did you mean "resources"?)',
        ),
        (
            {"sets": ["node_groups.a=1"]},
            "--set: node_groups.a names no setting (as in node_groups.NAME.nodes=2)",
        ),
        ({"max_runtime": "40d"}, "max_runtime: '40d' is not more than 0 and at most 30d"),
        (
            {"sets": ["resources.cpus=lots"]},
            "resources.cpus: must be a number, not 'lots'",
        ),
    ],
)
def test_bad_flags(flags: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(**flags, environ={})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_what_belongs_to_the_job_cannot_be_set() -> None:
    with pytest.raises(InvalidInput, match="framework belongs to the Job; a run cannot change it"):
        overrides_from_flags(sets=["framework=pytorch"])


def test_every_bad_flag_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(nodes=["x"], env=["NOPE"], sets=["y"], environ={})
    assert len(caught.value.problems) == 3


def test_from_python() -> None:
    overrides = overrides_from_mapping({"nodes": 2, "max_runtime": "5m", "args": ["a"]})
    assert overrides == RunOverrides(nodes=2, max_runtime=300.0, args=("a",))
    with pytest.raises(InvalidInput, match=r'nods: unknown field .did you mean "nodes"'):
        overrides_from_mapping({"nods": 2})
