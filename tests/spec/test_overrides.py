from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.spec.models import JobSpec, Mount, Resources
from muster.spec.override_flags import changes_from_flags, overrides_from_flags
from muster.spec.override_models import GroupOverrides, RunOverrides
from muster.spec.overrides import combined, overrides_from_mapping
from muster.spec.partial_overrides import with_items
from muster.spec.reader import spec_from_mapping
from muster.spec.resolve import resolve


@pytest.mark.shows("distributed-jobs/capability-override-node")
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
        ({"max_restarts": 0}, RunOverrides(max_restarts=0)),
        ({"suspend": True}, RunOverrides(suspend=True)),
        ({"sets": ["max_restarts=2", "suspend=no"]}, RunOverrides(max_restarts=2, suspend=False)),
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
        ({"mounts": ["10.0.0.1:/a"]}, RunOverrides(mounts=(Mount(source="10.0.0.1:/a"),))),
        ({"mounts": ["nfs://host/a"]}, RunOverrides(mounts=(Mount(source="nfs://host/a"),))),
    ],
)
def test_valid_flags(flags: dict[str, list[str]], overrides: RunOverrides) -> None:
    assert overrides_from_flags(**flags, environ={"HOMEX": "/h"}) == overrides  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"nodes": ["many"]},
            "--nodes: 'many' is not a number of nodes (write 4 or workers=4)",
        ),
        ({"nodes": ["0"]}, "--nodes 0: must be at least 1, not 0"),
        (
            {"env": ["NOPE"]},
            "--env: NOPE is not set in your environment (write NOPE=VALUE, or export it)",
        ),
        ({"sets": ["x"]}, "--set: 'x' is not PATH=VALUE (as in resources.cpus=2)"),
        (
            {"sets": ["resorces.cpus=1"]},
            '--set resorces.cpus=1: unknown field (did you mean "resources"?)',
        ),
        (
            {"sets": ["failre.max_restarts=1"]},
            '--set failre.max_restarts=1: unknown field (did you mean "failure"?)',
        ),
        (
            {"sets": ["framewrk=dask"]},
            "--set framewrk=dask: unknown field "
            '(did you mean "framework"? it belongs to the job: change the spec)',
        ),
        (
            {"sets": ["node_groups.a=1"]},
            "--set: node_groups.a is not a setting (as in node_groups.NAME.nodes=2)",
        ),
        (
            {"max_runtime": "40d"},
            "--max-runtime 40d: '40d' is too long (a run may take up to 30d)",
        ),
        ({"max_restarts": -1}, "--max-restarts -1: must be at least 0, not -1"),
        (
            {"sets": ["framework=dask"]},
            "--set framework=dask: belongs to the job; a run cannot change it (change the spec, "
            "which makes a new version of the job)",
        ),
        (
            {"nodes": ["=3"]},
            "--nodes: '=3' is not a number of nodes (write 4 or workers=4)",
        ),
        (
            {"nodes": ["\N{SUPERSCRIPT TWO}"]},
            "--nodes: '\N{SUPERSCRIPT TWO}' is not a number of nodes (write 4 or workers=4)",
        ),
        ({"env": ["=1"]}, "--env: '' names no variable (write K=V or workers:K=V)"),
        ({"env": [":A=1"]}, "--env: ':A' names no group (write K=V or workers:K=V)"),
        (
            {"env": ["1A=secret"]},
            "--env 1A: '1A' is not a valid name of an environment variable "
            "(use letters, digits and _, not starting with a digit)",
        ),
        ({"mounts": ["/a", ""]}, "--mount: source: must not be empty"),
        (
            {"mounts": ["data-1:/data:ro"]},
            "--mount data-1:/data:ro: there is no folder 'data-1' here "
            "(create it, or for an NFS export write nfs://data-1/data)",
        ),
        (
            {"sets": ["args=[1"]},
            "--set args=[1: not valid YAML: did not find expected ',' or ']' "
            "(check indentation, colons and quotes)",
        ),
        (
            {"sets": ["resources..cpus=1"]},
            "--set: 'resources..cpus=1' is not PATH=VALUE (as in resources.cpus=2)",
        ),
        (
            {"arrays": ["password=hunter2,98765,"]},
            "--array password=***: *** has an empty value at column 15 "
            '(write "" for an empty text)',
        ),
        (
            {"sets": ["array.password=hunter2,9..3"]},
            "--set array.password=***: *** is an empty range",
        ),
        (
            {"sets": ["array={password: [hunter2, []]}"]},
            "--set array=***: parameters.password: a value must be text, a number, true or false, "
            "not a list (write it as one text)",
        ),
        (
            {"sets": ["resources.cpus=lots"]},
            "--set resources.cpus=lots: must be a number, not 'lots'",
        ),
    ],
)
def test_invalid_flags_are_refused(flags: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(**flags, environ={})  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_mounts_of_existing_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    given = ["data:/in", "data:in:ro", "./data"]
    found = overrides_from_flags(mounts=given).mounts or ()
    assert [(m.source, m.path, m.read_only) for m in found] == [
        (str(tmp_path / "data"), "/in", False),
        (str(tmp_path / "data"), "in", True),
        (str(tmp_path / "data"), None, False),
    ]


def test_mounts_of_volumes() -> None:
    given = [
        "volume:a",
        "volume:a:/data",
        "volume:a:/data:ro",
        "volume:a/b:/c",
        "scratch:node/a:/d",
    ]
    found = overrides_from_flags(mounts=given).mounts or ()
    assert [(m.source, m.path, m.read_only) for m in found] == [
        ("volume:a", None, False),
        ("volume:a", "/data", False),
        ("volume:a", "/data", True),
        ("volume:a/b", "/c", False),
        ("scratch:node/a", "/d", False),
    ]


def test_fields_of_the_job_cannot_be_set() -> None:
    with pytest.raises(InvalidInput, match="belongs to the job; a run cannot change it"):
        overrides_from_flags(sets=["framework=pytorch"])


def test_every_bad_flag_is_named_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(nodes=["x"], env=["NOPE"], sets=["y"], environ={})
    assert len(caught.value.problems) == 3


def test_overrides_from_python() -> None:
    overrides = overrides_from_mapping({"nodes": 2, "max_runtime": "5m", "args": ["a"]})
    assert overrides == RunOverrides(nodes=2, max_runtime=300.0, args=("a",))
    with pytest.raises(InvalidInput, match=r'nods: unknown field .did you mean "nodes"'):
        overrides_from_mapping({"nods": 2})


def test_settings_that_exclude_each_other() -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(sets=["resources=2", "resources.cpus=1"])
    assert [str(problem) for problem in caught.value.problems] == [
        "--set resources.cpus=1: resources was given a value by --set resources=2 "
        "(keep only one of them)",
        "--set resources=2: must be a mapping, not 2 (write {cpus: ...})",
    ]


def test_nested_settings_that_exclude_each_other() -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(sets=["resources={cpus: 1}", "resources.cpus.x=1"])
    assert str(caught.value) == (
        "--set resources.cpus.x=1: resources.cpus was given a value by "
        "--set resources={cpus: 1} (keep only one of them)"
    )


def test_text_is_kept_as_typed() -> None:
    overrides = overrides_from_flags(sets=["env.A=010", "env.B=[1]", "args=[1.10, yes, 1e3]"])
    assert overrides.env == {"A": "010", "B": "[1]"}
    assert overrides.args == ("1.10", "yes", "1e3")


@pytest.mark.parametrize("name", ["env", "tags", "args"])
def test_a_group_can_have_the_name_of_a_field(name: str) -> None:
    sets = [f"node_groups.{name}.nodes=2", f"node_groups[{name}].replicas=3"]
    groups = overrides_from_flags(sets=[*sets, f"node_groups.{name}.env.A=010"]).node_groups
    assert (groups[name].nodes, groups[name].replicas, groups[name].env) == (2, 3, {"A": "010"})


def test_paths_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    for typed, path in (("~/logs", "/home/me/logs"), ("logs", f"{tmp_path}/logs"), ("/x", "/x")):
        flags = overrides_from_flags(sets=[f"logging.directory={typed}"], mounts=[typed])
        assert flags.logging is not None
        assert flags.logging.directory == path
        assert flags.mounts is not None
        assert flags.mounts[0].source == path


def test_no_message_holds_the_value_of_a_variable() -> None:
    with pytest.raises(InvalidInput) as caught:
        overrides_from_flags(env=["A=hush\0", "1B=hush", ":C=hush"], sets=["env.D=hush\udcff"])
    assert len(caught.value.problems) == 4
    assert "hush" not in str(caught.value)


@given(
    st.lists(st.text(max_size=12), max_size=3),
    st.lists(st.text(max_size=12), max_size=3),
    st.lists(
        st.text(max_size=12)
        | st.builds(
            "{}={}".format,
            st.sampled_from(["env", "env.A", "args", "resources", "resources.cpus", "mounts"])
            | st.sampled_from(["node_groups.a.env", "node_groups[a].nodes", "logging.directory"]),
            st.text(max_size=8),
        ),
        max_size=3,
    ),
)
def test_any_flags_are_accepted_or_refused(
    nodes: list[str], env: list[str], sets: list[str]
) -> None:
    try:
        made = overrides_from_flags(nodes=nodes, env=env, sets=sets, environ={})
    except InvalidInput as error:
        assert error.problems
    else:
        assert isinstance(made, RunOverrides)


LISTS: dict[str, Any] = {
    "command": "x",
    "args": ["a", "b"],
    "mounts": [{"source": "/m0"}, {"source": "/m1", "read_only": True}],
}
GROUPS: dict[str, Any] = {
    **LISTS,
    "node_groups": [
        {"name": "one", "mounts": [{"source": "/own"}]},
        {"name": "two", "args": ["c"]},
    ],
}


def changed(data: dict[str, Any], *sets: str) -> JobSpec:
    """The spec that a run with these changes has."""
    job = spec_from_mapping(data)
    return resolve(job, with_items(changes_from_flags(sets=sets), job).require_valid()).spec


def test_items_of_lists_by_number() -> None:
    sets = ("args[0]=1.10", "mounts[1].source=/other", "mounts[0].path=/p")
    (group,) = changed(LISTS, *sets).node_groups
    assert group.args == ("1.10", "b")
    assert group.mounts == (
        Mount(source="/m0", path="/p"),
        Mount(source="/other", read_only=True),
    )
    (group,) = changed(LISTS, "mounts[0]={source: /whole}").node_groups
    assert [mount.source for mount in group.mounts] == ["/whole", "/m1"]


def test_items_of_the_job_and_of_its_groups() -> None:
    one, two = changed(
        GROUPS, "args[1]=z", "mounts[0].source=/new", "node_groups[0].mounts[0].source=/mine"
    ).node_groups
    assert (one.args, two.args) == (("a", "z"), ("c",))
    assert [mount.source for mount in one.mounts] == ["/new", "/m1", "/mine"]
    assert [mount.source for mount in two.mounts] == ["/new", "/m1"]
    one, two = changed(GROUPS, "node_groups.two.args[0]=y", "node_groups.one.args[0]=x").node_groups
    assert (one.args, two.args) == (("x", "b"), ("y",))


@pytest.mark.parametrize(
    ("change", "file", "rows"),
    [
        ("file=new.csv", "new.csv", '["wd"]\n["9"]'),
        ("rows=[{wd: 8}]", None, '["wd"]\n["8"]'),
        ("file=null", None, None),
        ("rows=null", None, None),
        ("sample=2", "old.csv", '["lr"]\n["1"]\n["2"]'),
    ],
)
@pytest.mark.parametrize("is_group", [False, True])
def test_the_sets_of_an_array_are_those_of_its_file(
    change: str,
    file: str | None,
    rows: str | None,
    is_group: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.csv").write_text("lr\n1\n2\n")
    (tmp_path / "new.csv").write_text("wd\n9\n")
    array = {"file": "old.csv", "parameters": {"bs": "4,5"}}
    data: dict[str, Any] = {"name": "demo", "command": ["true"], "array": array}
    if is_group:
        groups = [{"name": "a", "array": data.pop("array")}, {"name": "b"}]
        data["node_groups"] = groups
    prefix = "node_groups.a." if is_group else ""
    found = changed(data, f"{prefix}array.{change}").node_groups[0].array
    assert found is not None
    expected = None if file is None else str(tmp_path / file)
    assert (found.file, found.rows, found.parameters) == (expected, rows, {"bs": "4,5"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "args[2]=x",
            "--set args[2]=x: args has 2 items (they are 0 to 1; or set the whole list: "
            "--set args=[...])",
        ),
        (
            "mounts[-1].source=/x",
            "--set mounts[-1].source=/x: mounts has 2 items (they are 0 to 1; or set the whole "
            "list: --set mounts=[...])",
        ),
        (
            "node_groups[1].mounts[0].source=/x",
            "--set node_groups[1].mounts[0].source=/x: node_groups[1].mounts is empty "
            "(set the whole list: --set node_groups[1].mounts=[...])",
        ),
        (
            "node_groups.three.args[0]=x",
            "--set node_groups.three.args[0]=x: no group named 'three' (use one or two)",
        ),
        (
            "args[0].x=1",
            "--set args[0].x=1: args[0] has no x (set the item: args[0]=...)",
        ),
        (
            "mounts[0].sorce=/x",
            '--set mounts[0].sorce=/x: unknown field (did you mean "source"?)',
        ),
        (
            "description=new",
            "--set description=new: belongs to the job; a run cannot change it "
            "(`muster jobs edit JOB --set description=VALUE` does, or change the spec)",
        ),
        (
            "failure.rules[1].action=fail",
            "--set failure.rules[1].action=fail: items of this list cannot be set one by one "
            "(set the whole list: --set failure.rules=[...])",
        ),
        (
            "node_groups.one.depends_on[0].group=two",
            "--set node_groups.one.depends_on[0].group=two: items of this list cannot be set "
            "one by one (set the whole list: --set node_groups[one].depends_on=[...])",
        ),
    ],
)
def test_missing_items_are_refused(change: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        changed(GROUPS, change)
    assert str(caught.value).startswith(message)


def test_items_of_a_run_that_is_resumed() -> None:
    """Its spec is in normal form: all settings are in its groups."""
    once = changed(LISTS)
    changes = with_items(changes_from_flags(sets=["args[0]=z"]), once)
    assert resolve(once, changes.require_valid()).spec.node_groups[0].args == ("z", "b")


def test_a_list_and_an_item_of_it() -> None:
    with pytest.raises(InvalidInput, match=r"args is also given as a whole \(keep only one"):
        changed(LISTS, "args=[x]", "args[0]=y")


def test_overrides_are_combined() -> None:
    first = {
        "nodes": 2,
        "env": {"A": "1", "B": "1"},
        "engine": "hosts",
        "node_groups": {"a": {"nodes": 3, "env": {"A": "1"}}, "b": {"nodes": 1}},
    }
    second = {
        "engine": "slurm",
        "env": {"B": "2"},
        "tags": {"x": "y"},
        "node_groups": {"a": {"nodes": 4, "env": {"B": "2"}}, "c": {"retries": 1}},
    }
    both = combined(overrides_from_mapping(first), overrides_from_mapping(second))
    assert both == overrides_from_mapping(
        {
            "nodes": 2,
            "engine": "slurm",
            "env": {"A": "1", "B": "2"},
            "tags": {"x": "y"},
            "node_groups": {
                "a": {"nodes": 4, "env": {"A": "1", "B": "2"}},
                "b": {"nodes": 1},
                "c": {"retries": 1},
            },
        }
    )
    assert combined(both, RunOverrides()) == both
    assert combined(RunOverrides(), both) == both


def test_flags_name_runs_to_wait_for() -> None:
    changes = changes_from_flags(after_runs=["train-1", "prepare-2"])
    assert changes.require_valid().after == ("train-1", "prepare-2")
    assert changes.flags == {"after": "--after train-1 prepare-2"}
