"""`muster jobs`, and names for people."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import muster as api

MUSTER = [sys.executable, "-m", "muster"]
USER = pwd.getpwuid(os.getuid()).pw_name


def muster(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MUSTER, *args], check=False, capture_output=True, text=True, timeout=120
    )


def ok(*args: str) -> str:
    done = muster(*args)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def table(*args: str) -> list[dict[str, str]]:
    """The rows of a list, by what stands above them."""
    head, *lines = ok(*args).splitlines()
    columns = {name: head.index(name) for name in head.split()}
    ends = [*columns.values(), None][1:]
    return [
        {n: line[a:b].strip() for (n, a), b in zip(columns.items(), ends, strict=True)}
        for line in lines
    ]


@pytest.mark.shows("cluster-design/job-created-by", "cluster-design/job-artifact-name")
def test_a_job_from_its_creation_to_its_end(tmp_path: Path) -> None:
    script = tmp_path / "container.py"
    script.write_text("print('hello')\n")
    words = ["--description", "for people", "--display-name", "My trial", "--tag", "team=ml"]
    made = muster("jobs", "create", str(script), *words, "--nodes", "2", "--", "--epochs", "3")
    job = api.get_job("container")
    assert made.stdout == f"{job.id}\n"
    assert made.stderr == "container@1 is created; `muster run container@1` starts it\n"
    assert api.runs() == []
    (row,) = table("jobs", "list", "--tag", "team")
    assert (row["JOB"], row["NAME"], row["BY"]) == ("container@1", "My trial", USER)
    assert (row["CODE"], row["DESCRIPTION"]) == ("container.py", "for people")
    head, body = ok("jobs", "show", "My trial").split("\nname:")
    assert head.splitlines()[:2] == [f"# container@1, id {job.id}", "# My trial"]
    assert f"by {USER}" in head
    assert "# code: container.py (15 bytes)" in head
    assert yaml.safe_load(f"name:{body}")["args"] == ["--epochs", "3"]
    ok("run", "My trial", "--run-name", "one", "--tag", "level=1")
    ok("jobs", "edit", "container", "--set", "description=Another")
    shown = ok("runs", "show", "one")
    assert shown.startswith("container-1 (one)  SUCCEEDED")
    assert f"started by {USER}\ntag team=ml\ntag level=1\n" in shown
    (row,) = table("runs", "list", "--tag", "level=1")
    assert (row["RUN"], row["NAME"]) == ("container-1", "one")
    (data,) = json.loads(ok("runs", "list", "--json"))
    assert (data["display_name"], data["created_by"]) == ("one", USER)
    assert data["tags"] == {"team": "ml", "level": "1"}
    assert ok("jobs", "delete", "container") == "container@1 is deleted\n"
    assert ok("jobs", "delete", "container@1") == "container@1 is already deleted\n"
    assert muster("jobs", "list").stderr == "no jobs\n"
    assert [row["STATE"] for row in table("jobs", "list", "--all")] == ["DELETED"]
    events = table("jobs", "events", job.id)
    assert [(row["WHAT"], row["BY"], row["DATA"]) for row in events] == [
        ("created", USER, ""),
        ("edited", USER, "description: for people -> Another"),
        ("deleted", USER, ""),
    ]
    told = json.loads(ok("jobs", "events", "container@1", "--after", "1", "--json"))
    assert [event["kind"] for event in told] == ["edited", "deleted"]
    assert told[0]["changes"]["description"] == {"from": "for people", "to": "Another"}
    assert "hello" in ok("logs", "one", "--rank", "0")
    deleted = ok("jobs", "delete", "container", "--runs")
    assert deleted == "container@1 is deleted, with 1 run\n"
    assert api.runs() == []


def test_versions_are_deleted_one_by_one_or_together(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    for number in range(4):
        spec.write_text(f"name: train\ncommand: echo {number}\n")
        api.create_job(spec)
    assert ok("jobs", "delete", "train") == "train@4 is deleted; train is train@3 now\n"
    api.get_job("train@1").run(suspend=True)
    refused = muster("jobs", "delete", "train", "--all-versions")
    assert refused.returncode == 2
    expected = "error: train-1 is SUSPENDED (`muster runs cancel train-1` ends it)\n"
    assert refused.stderr == expected
    assert [job.version for job in api.jobs()] == [3, 2, 1]
    ok("runs", "cancel", "train-1")
    ok("jobs", "delete", "train", "--all-versions", "--runs")
    assert (api.jobs(), api.runs()) == ([], [])


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (
            ["job.yaml", "--nodes", "2", "--env", "A=1", "--name", "x", "--", "more"],
            [
                "--nodes, what follows --, --env, --name: job.yaml describes the job already "
                "(change it there)"
            ],
        ),
        (
            ["train.py", "--nodes", "workers=2", "--set", "run_name=x", "--set", "args[0]=y"],
            [
                "--set run_name: belongs to a run, not to a job (give it to `muster run` instead)",
                "--nodes workers=2: a job that is made from code or a command has one group "
                "(say it without the group, or write a spec file)",
                "--set args[0]=y: there is no list yet (set args)",
            ],
        ),
        (
            ["train.py", "--tag", "team", "--nodes", "many", "--env", "NOT_SET", "--mount", "/no"],
            [
                "--nodes: 'many' is not a number of nodes (write 4 or workers=4)",
                "--env: NOT_SET is not set in your environment (write NOT_SET=VALUE, or set it "
                "before)",
                "--tag: 'team' is no tag (write K=V)",
                "mounts[0].source: there is no /no (make it, or check the path)",
            ],
        ),
        (["nothing.py"], ['artifact: there is no {folder}/nothing.py (did you mean "train.py"?)']),
    ],
)
def test_a_job_that_cannot_be_made(
    words: list[str], problems: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("command: echo\n")
    Path("train.py").write_text("pass\n")
    done = muster("jobs", "create", *words)
    assert done.returncode == 2
    told = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    assert told == [problem.replace("{folder}", str(tmp_path)) for problem in problems]
    assert api.jobs() == []


def test_all_jobsets_of_a_file_are_made(tmp_path: Path) -> None:
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
    made: Any = json.loads(ok("jobs", "create", str(tmp_path / "sets.yaml"), "--json"))
    assert [job["name"] for job in made] == ["one", "two"]
    assert [job.id for job in api.jobs()] == [job["id"] for job in reversed(made)]
