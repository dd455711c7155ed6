"""`-o json|yaml|wide` and `--json`; what all commands have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click
import pytest
import yaml

from muster.cli.main import cli
from muster.client.client import Client
from support.command import json_of, muster, output_of
from support.embedded import embedded


@pytest.fixture
def run_id(client: Client) -> str:
    job, new = client.job(command=["echo", "a\tb \u202e: ü"], name="demo")
    return client.start(client.prepare_run(job, new_job=new)).wait(60).id


@pytest.mark.parametrize(
    "command", ["ps", "status last", "events last", "jobs list", "jobs show demo", "doctor"]
)
def test_every_format_has_the_same_data(run_id: str, command: str) -> None:
    words = command.split()
    data = json_of(*words, "--json")
    assert json_of(*words, "-o", "json") == data
    assert yaml.safe_load(output_of(*words, "-o", "yaml")) == data


def test_a_stream_is_lines_or_documents(run_id: str) -> None:
    lines = [json.loads(line) for line in output_of("logs", run_id, "-ojson").splitlines()]
    documents = list(yaml.safe_load_all(output_of("logs", run_id, "--output", "yaml")))
    assert documents == lines
    assert "a\tb \u202e: ü" in [record["message"] for record in documents]


def test_wide_shows_all_columns(run_id: str) -> None:
    assert "BY" not in output_of("ps").splitlines()[0].split()
    assert "BY" in output_of("ps", "-o", "wide").splitlines()[0].split()
    assert "STATE" in output_of("jobs", "list", "-o", "wide").splitlines()[0].split()


def test_o_is_a_format_or_a_framework_option(client: Client) -> None:
    """Both are common; a framework option contains an equals sign."""
    command = ("--framework", "dask", "-o", "threads=2", "--", "true")
    plan = yaml.safe_load(output_of("explain", "-o", "yaml", *command))
    assert plan["framework"] == "dask"
    assert [*plan] == [*json_of("explain", "--output", "json", *command)]
    assert "unknown field" in muster("run", "-o", "nosuch=1", "--", "true", code=2).stderr


def test_a_dry_run_prints_the_plan_and_stores_nothing(client: Client) -> None:
    shown = output_of("run", "--dry-run", "-n", "2", "--", "true").splitlines()
    explained = output_of("explain", "-n", "2", "--", "true").splitlines()
    assert shown[0] == "job true: 2 nodes"
    assert [line.partition("=")[0] for line in shown[:-3]] == [
        line.partition("=")[0] for line in explained[:-3]
    ]
    assert json_of("run", "--dry-run", "--json", "--", "true")["job_name"] == "true"
    refused = muster("run", "--dry-run", "--set", "resources.gpus=99", "--", "true", code=2)
    assert "a node needs 99 GPUs" in refused.stderr
    assert client.runs() == []
    assert embedded(client).jobs() == []


def test_every_command_has_an_example_in_its_help() -> None:
    paths: dict[int, list[str]] = {}
    commands: dict[int, click.Context] = {}
    for ctx in _leaves(click.Context(cli, info_name="muster")):
        paths.setdefault(id(ctx.command), []).append(ctx.command_path)
        commands[id(ctx.command)] = ctx
    without = [
        names
        for key, names in paths.items()
        if not any(
            name in line
            for line in commands[key].command.get_help(commands[key]).splitlines()[1:]
            for name in names
        )
    ]
    assert without == []


def _leaves(ctx: click.Context) -> Iterator[click.Context]:
    group = ctx.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, ctx, name)
        if isinstance(command, click.Group):
            yield from _leaves(inner)
        else:
            yield inner
