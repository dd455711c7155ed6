"""`muster jobs`, and display names."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
import yaml

import muster as api
from support.command import muster, output_of
from support.embedded import over_http

USER = pwd.getpwuid(os.getuid()).pw_name


def table(*args: str) -> list[dict[str, str]]:
    """The rows of a table, by column header."""
    head, *lines = output_of(*args).splitlines()
    columns = {name: head.index(name) for name in head.split()}
    ends = [*columns.values(), None][1:]
    return [
        {n: line[a:b].strip() for (n, a), b in zip(columns.items(), ends, strict=True)}
        for line in lines
    ]


@pytest.mark.shows("cluster-design/job-created-by", "cluster-design/job-artifact-name")
def test_a_job_from_creation_to_deletion(tmp_path: Path) -> None:
    script = tmp_path / "container.py"
    script.write_text("print('hello')\n")
    words = ["--description", "for people", "--display-name", "My trial", "--tag", "team=ml"]
    made = muster("jobs", "create", str(script), *words, "--nodes", "2", "--", "--epochs", "3")
    job = api.get_job("container")
    assert made.stdout == f"{job.id}\n"
    assert made.stderr == "container@1 created; `muster run container@1` starts it\n"
    assert api.runs() == []
    (row,) = table("jobs", "list", "--tag", "team")
    assert (row["JOB"], row["NAME"], row["BY"]) == ("container@1", "My trial", USER)
    assert (row["CODE"], row["DESCRIPTION"]) == ("container.py", "for people")
    head, body = output_of("jobs", "show", "My trial").split("\nname:")
    assert head.splitlines()[:2] == [f"# container@1, id {job.id}", "# My trial"]
    assert f"by {USER}" in head
    assert "# code: container.py (15 bytes)" in head
    assert yaml.safe_load(f"name:{body}")["args"] == ["--epochs", "3"]
    output_of("run", "My trial", "--run-name", "one", "--tag", "level=1")
    output_of("jobs", "edit", "container", "--set", "description=Another")
    shown = output_of("runs", "show", "one", "--all")
    assert shown.startswith("container-1 (one)  SUCCEEDED")
    assert f"started by {USER}\ntag team=ml\ntag level=1\n" in shown
    (row,) = table("runs", "list", "--tag", "level=1")
    assert (row["RUN"], row["NAME"]) == ("container-1", "one")
    (data,) = json.loads(output_of("runs", "list", "--json"))
    assert (data["display_name"], data["created_by"]) == ("one", USER)
    assert data["tags"] == {"team": "ml", "level": "1"}
    assert output_of("jobs", "delete", "container", "-y") == "container@1 is deleted\n"
    assert output_of("jobs", "delete", "container@1") == "container@1 is already deleted\n"
    assert muster("jobs", "list").stderr == "no jobs\n"
    assert [row["STATE"] for row in table("jobs", "list", "--all")] == ["DELETED"]
    events = table("jobs", "events", job.id)
    assert [(row["WHAT"], row["BY"], row["DATA"]) for row in events] == [
        ("created", USER, ""),
        ("edited", USER, "description: for people -> Another"),
        ("deleted", USER, ""),
    ]
    output = json.loads(output_of("jobs", "events", "container@1", "--after", "1", "--json"))
    assert [event["kind"] for event in output] == ["edited", "deleted"]
    assert output[0]["changes"]["description"] == {"from": "for people", "to": "Another"}
    assert "hello" in output_of("logs", "one", "--rank", "0")
    deleted = output_of("jobs", "delete", "container", "--runs")
    assert deleted == "container@1 is deleted, with 1 run\n"
    assert api.runs() == []


def test_versions_are_deleted_singly_or_together(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    for number in range(4):
        spec.write_text(f"name: train\ncommand: echo {number}\n")
        api.create_job(spec)
    assert output_of("jobs", "delete", "train") == "train@4 is deleted; train is now train@3\n"
    api.get_job("train@1").run(suspend=True)
    refused = muster("jobs", "delete", "train", "--all-versions")
    assert refused.returncode == 2
    expected = "error: train-1 is SUSPENDED (`muster cancel train-1` ends it)\n"
    assert refused.stderr == expected
    assert [job.version for job in api.jobs()] == [3, 2, 1]
    output_of("runs", "cancel", "train-1")
    output_of("jobs", "delete", "train", "--all-versions", "--runs")
    assert (api.jobs(), api.runs()) == ([], [])


#: What is wrong with the directory of a mount.
MISSING = "not found (create it, or check the path)"
ON_SERVER = (
    "would be a directory of the server's machine (use a URL, or volume:NAME for a directory that "
    "your runs share on the server)"
)


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (
            ["job.yaml", "--nodes", "2", "--env", "A=1", "--name", "x", "--", "more"],
            [
                "what follows --, --env, --nodes, --name: job.yaml describes the job already "
                "(change it there)"
            ],
        ),
        (
            ["train.py", "--nodes", "workers=2", "--set", "run_name=x", "--set", "args[0]=y"],
            [
                "--set run_name: belongs to a run, not to a job (give it to `muster run`)",
                "--nodes workers=2: a job made from code or a command has one group "
                "(leave out the group, or write a spec file)",
                "--set args[0]=y: the job has no such list yet (set args)",
            ],
        ),
        (
            ["train.py", "--tag", "team", "--nodes", "many", "--env", "NOT_SET", "--mount", "/no"],
            [
                "--nodes: 'many' is not a number of nodes (write 4 or workers=4)",
                "--env: NOT_SET is not set in your environment (write NOT_SET=VALUE, or export it)",
                "--tag: 'team' is not a tag (write K=V)",
                "mounts[0].source: /no {no_directory}",
            ],
        ),
        (["nothing.py"], ['TARGET: {folder}/nothing.py not found (did you mean "train.py"?)']),
    ],
)
def test_invalid_jobs_are_not_created(
    words: list[str], problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("command: echo\n")
    Path("train.py").write_text("pass\n")
    done = muster("jobs", "create", *words)
    assert done.returncode == 2
    output = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    expected = {"{folder}": str(tmp_path), "{no_directory}": ON_SERVER if over_http() else MISSING}
    for name, text in expected.items():
        problems = [problem.replace(name, text) for problem in problems]
    assert output == problems
    assert api.jobs() == []


def test_all_jobsets_of_a_file_become_jobs(tmp_path: Path) -> None:
    template = {
        "spec": {"template": {"spec": {"containers": [{"name": "c", "command": ["true"]}]}}}
    }
    sets = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name},
            "spec": {"replicatedJobs": [{"name": "w", "template": template}]},
        }
        for name in ("one", "two")
    ]
    (tmp_path / "sets.yaml").write_text(yaml.safe_dump_all(sets))
    made: Any = json.loads(output_of("jobs", "create", str(tmp_path / "sets.yaml"), "--json"))
    assert [job["name"] for job in made] == ["one", "two"]
    assert [job.id for job in api.jobs()] == [job["id"] for job in reversed(made)]
