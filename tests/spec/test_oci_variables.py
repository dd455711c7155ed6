"""Variables that set the command, as in OCI's jobs."""

from __future__ import annotations

from typing import Any

import pytest

from muster.spec.models import JobSpec, NodeGroup
from muster.spec.oci_variables import (
    apply_variables,
    command_in,
    entrypoint_variable,
    image_in,
    only_arguments,
    options_set_entrypoint,
    same_file,
    with_run_entrypoint,
)
from muster.spec.overrides import overrides_from_mapping
from muster.spec.resolve import resolve
from muster.spec.rules import check
from muster.spec.wording import Refused

COMMANDS: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({}, ()),
    ({"CONTAINER_CMD": '["ls", "-a b"]'}, ("ls", "-a b")),
    ({"CONTAINER_CMD": '"ls", "-a b"'}, ("ls", "-a b")),
    ({"CONTAINER_CMD": "ls,-l, -a"}, ("ls", "-l", "-a")),
    ({"CONTAINER_CMD": "ls -l 'a b'"}, ("ls", "-l", "a b")),
    ({"CONTAINER_ENTRYPOINT": '["sh", "-c"]', "CONTAINER_CMD": '"echo a, b"'},
     ("sh", "-c", "echo a, b")),
    ({"CONTAINER_ENTRYPOINT": "serve", "CONTAINER_CMD": "  "}, ("serve",)),
]  # fmt: skip


@pytest.mark.parametrize(("env", "words"), COMMANDS)
def test_the_command_of_a_container(env: dict[str, str], words: tuple[str, ...]) -> None:
    assert command_in(env) == words


@pytest.mark.parametrize("text", ['["a"', '"a', "[1, 2]", "['a']", "a 'b"])
def test_invalid_commands_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        command_in({"CONTAINER_CMD": text})


def resolved(spec: JobSpec, **overrides: Any) -> JobSpec:
    return resolve(spec, overrides_from_mapping(overrides)).spec


@pytest.mark.shows("distributed-jobs/capability-container-by-environment")
def test_variables_set_the_image_and_command_of_a_run() -> None:
    env = {"DOCKER_CUSTOM_IMAGE": "old:1", "CONTAINER_CMD": "serve"}
    (group,) = resolved(JobSpec(env=env)).node_groups
    assert (group.image, group.command, group.env) == ("old:1", ("serve",), env)
    new = {"CONTAINER_CUSTOM_IMAGE": "new:1", "CONTAINER_CMD": "other"}
    (group,) = resolved(JobSpec(env=env), env=new).node_groups
    assert (group.image, group.command) == ("new:1", ("other",))


@pytest.mark.shows("distributed-jobs/capability-container-by-environment")
def test_each_group_has_its_own_image_and_command() -> None:
    groups = (
        NodeGroup(name="a", env={"CONTAINER_CMD": "a"}),
        NodeGroup(name="b", env={"CONTAINER_CUSTOM_IMAGE": "b:1"}),
    )
    spec = resolved(JobSpec(node_groups=groups, env={"CONTAINER_CMD": "c"}))
    assert [group.command for group in spec.node_groups] == [("a",), ("c",)]
    assert [group.image for group in spec.node_groups] == [None, "b:1"]


def test_fields_take_precedence_over_variables_with_a_note() -> None:
    env = {
        "CONTAINER_CUSTOM_IMAGE": "new:1",
        "CONTAINER_CMD": "serve",
        "JOB_RUN_ENTRYPOINT": "x.py",
    }
    found = resolve(
        JobSpec(image="own:1", artifact="code", entrypoint="main.py", env=env),
        overrides_from_mapping({}),
    )
    (group,) = found.spec.node_groups
    assert (group.image, group.command) == ("own:1", None)
    assert group.env["JOB_RUN_ENTRYPOINT"] == "main.py", "the variable has the value that is used"
    assert found.notes == (
        "JOB_RUN_ENTRYPOINT: x.py is not used: entrypoint is main.py",
        "group workers: CONTAINER_CUSTOM_IMAGE is not used: image is own:1",
        "group workers: CONTAINER_CMD not used: the artifact is given",
    )


def test_variables_that_are_used_are_not_noted() -> None:
    env = {
        "CONTAINER_CUSTOM_IMAGE": "new:1",
        "CONTAINER_CMD": "serve",
        "JOB_RUN_ENTRYPOINT": "x.py",
    }
    assert resolve(JobSpec(env=env), overrides_from_mapping({})).notes == ()
    code = JobSpec(artifact="code", entrypoint="code/x.py", env={"JOB_RUN_ENTRYPOINT": "x.py"})
    assert resolve(code, overrides_from_mapping({})).notes == ()


def test_an_invalid_command_is_refused_at_its_place() -> None:
    groups = (NodeGroup(name="a", env={"CONTAINER_ENTRYPOINT": '["sh'}), NodeGroup(name="b"))
    (found,) = check(JobSpec(node_groups=groups, env={"CONTAINER_CMD": "b"}))
    text = "'[\"sh' is not a list of words in double quotes"
    assert (found.path, found.message) == ("node_groups[0].env.CONTAINER_ENTRYPOINT", text)
    assert check(JobSpec(env={"CONTAINER_CMD": "["}, command=("ls",))) == []


def test_an_image_alone_runs_its_own_program() -> None:
    spec = JobSpec(env={"CONTAINER_CUSTOM_IMAGE": "x:1"})
    assert check(spec) == []
    (group,) = resolved(spec).node_groups
    assert (group.image, group.command) == ("x:1", None)


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "command", "expected"),
    [("", "a b", ("a", "b"), True), ("a", "b", ("a", "b"), False), ("", "a", ("b",), False),
     ("", "[", ("b",), False), ("", "", (), False)],
)  # fmt: skip
def test_a_cmd_alone_is_for_the_image_s_entrypoint(
    entrypoint: str, cmd: str, command: tuple[str, ...], expected: bool
) -> None:
    env = {"CONTAINER_ENTRYPOINT": entrypoint, "CONTAINER_CMD": cmd}
    assert only_arguments(env, command) is expected


def test_the_variable_that_sets_the_entry_point() -> None:
    env = {"JOB_RUN_ENTRYPOINT": "a.py"}
    assert entrypoint_variable(JobSpec(env=env)) == ("env.JOB_RUN_ENTRYPOINT", "a.py")
    assert entrypoint_variable(JobSpec(env=env, entrypoint="b.py")) is None
    groups = (NodeGroup(name="a", command=("x",), env=env), NodeGroup(name="b", env=env))
    path = "node_groups[1].env.JOB_RUN_ENTRYPOINT"
    assert entrypoint_variable(JobSpec(node_groups=groups)) == (path, "a.py")
    assert image_in({}) is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("a.py", "a.py", True), ("x/a.py", "a.py", True), ("a.py", "x/a.py", True),
     ("a.py", "b.py", False), ("xa.py", "a.py", False), ("./a.py", "a.py", True)],
)  # fmt: skip
def test_entry_points_are_compared_without_their_folder(one: str, other: str, same: bool) -> None:
    assert same_file(one, other) is same


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("JOB_RUN_ENTRYPOINT=a.py", True),
        ("workers:JOB_RUN_ENTRYPOINT=a.py", True),
        ("JOB_RUN_ENTRYPOINT", True),
        ("A=JOB_RUN_ENTRYPOINT=a.py", False),
        ("A=workers:JOB_RUN_ENTRYPOINT", False),
    ],
)
def test_options_that_set_the_entry_point(value: str, expected: bool) -> None:
    assert options_set_entrypoint(["B=1", value]) is expected


def test_a_new_job_takes_the_entry_point_of_its_first_run() -> None:
    run_env = {"JOB_RUN_ENTRYPOINT": "a.py"}
    spec = JobSpec(artifact="code", env={"B": "1"})
    assert with_run_entrypoint(spec, run_env).env == {"B": "1", **run_env}
    assert with_run_entrypoint(spec, {}) is spec
    for chosen in (JobSpec(entrypoint="b.py"), JobSpec(env={"JOB_RUN_ENTRYPOINT": "b.py"})):
        assert with_run_entrypoint(chosen, run_env) is chosen


def test_an_invalid_command_that_would_not_run_is_reported_as_unused() -> None:
    env = {"CONTAINER_CMD": '["sh"'}
    applied = apply_variables(JobSpec(artifact="code"), env, None, None, own_entrypoint=False)
    assert applied.notes == ("CONTAINER_CMD not used: the artifact is given",)
    assert applied.command is None
    assert apply_variables(JobSpec(), env, None, None, own_entrypoint=False).notes == ()
