"""Overrides of runs, from the command line to the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from support.command import muster, output_of

JOB = """
name: train
command: [sh, -c, "echo $NAME of $MUSTER_GROUP"]
env: {NAME: job}
node_groups:
  - {name: a, resources: {cpus: 1, memory: 1GiB}}
  - {name: b, replicas: 2, startup_probe: {tcp: 80, period: 3}}
"""


@pytest.fixture(autouse=True)
def job_in_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)


def errors_of(*words: str) -> list[str]:
    """The errors of a refused command."""
    done = muster(*words, code=2)
    return [line.removeprefix("error: ") for line in done.stderr.splitlines()]


@pytest.mark.shows("distributed-jobs/capability-override-node")
def test_explain_shows_overrides() -> None:
    flags = ["startup=in_order", "node_groups.b.min_success=1", "node_groups[0].resources.cpus=0.5"]
    words = [word for flag in flags for word in ("--set", flag)]
    output = muster("explain", "job.yaml", *words, "--env", "b:SECRET_KEY=hush").stdout
    changed = [
        line.partition(": ")[2]
        for line in output.splitlines()
        if line.startswith("overridden for this run: ")
    ]
    assert changed == [
        "startup: in_order (default: parallel)",
        'node_groups[a].resources: {"cpus": 0.5, "memory": "1GiB"} '
        '(in the job: {"cpus": 1.0, "memory": "1GiB"})',
        "node_groups[b].min_success: 1 (in the job: not set)",
        "node_groups[b].env.SECRET_KEY: *** (in the job: not set)",
    ]
    assert "startup: each group when the one before it is ready" in output
    assert "group b: 2 nodes, at least 1 of 2 replicas must succeed" in output
    assert "overridden for this run" not in muster("explain", "job.yaml").stdout


def test_explain_shows_a_part_of_what_the_job_does_not_set() -> None:
    output = muster("explain", "job.yaml", "--set", "checkpoint.signal=SIGUSR1").stdout
    assert "overridden for this run: checkpoint.signal: SIGUSR1 (in the job: not set)" in output


def test_explain_shows_an_item_that_the_job_does_not_have() -> None:
    shown = muster("explain", "job.yaml", "--set", "failure.rules=[{name: a, action: fail}]").stdout
    assert "overridden for this run: failure.rules[a].action: fail (in the job: not set)" in shown


def test_errors_name_the_flag() -> None:
    flags = [
        "node_groups[1].min_success=5",
        "node_groups[1].startup_probe.file=up",
        "node_groups.c.nodes=2",
        "startup_probe.tcp=3",
        "node_groups.a.hostname=same",
        "node_groups.a.nodes=2",
    ]
    words = [word for flag in flags for word in ("--set", flag)]
    assert errors_of("run", "job.yaml", *words, "--network", "isolatd", "-o", "x=1") == [
        "--network isolatd: cannot be 'isolatd' (did you mean \"isolated\"?)",
        "--set node_groups.c.nodes=2: no group named 'c' (use a or b)",
        "--set startup_probe.tcp=3: the job has the groups a, b "
        "(name the group: --set node_groups.a.startup_probe=...)",
        "--set node_groups[1].min_success=5: 5 replicas must succeed, but there are 2 (at most 2)",
        "--set node_groups.a.hostname=same: ranks 0 and 1 would both be named same "
        "(use ${rank} to make it unique)",
        "--set node_groups[1].startup_probe.file=up: has tcp and file "
        "(give exactly one of exec, tcp and file)",
        "--option x: unknown field (remove it: the framework has no options)",
    ]


def test_options_that_describe_a_job_are_refused_for_an_existing_one(client: Client) -> None:
    assert muster("run", "job.yaml", "--suspend").returncode == 0
    hint = "(`muster run` with the file or code that train is from, changed, makes a new version)"
    assert errors_of("run", "train", "--framework", "dask", "--name", "other") == [
        f"--name: belongs to the job; a run cannot change it {hint}",
        f"--framework: belongs to the job; a run cannot change it {hint}",
    ]
    assert len(client.runs()) == 1


def test_a_run_is_resumed_with_other_settings(client: Client) -> None:
    assert muster("run", "job.yaml", "--suspend").returncode == 0
    fixed = [
        *("--set", "node_groups.a.nodes=2", "--set", "node_groups[1].replicas=1"),
        *("--set", "processes_per_node=2", "--set", "logging.directory=x"),
        *("--set", "suspend=true", "--set", "node_groups.a.max_replicas=4"),
    ]
    text = "cannot change while a run is suspended"
    output = errors_of("runs", "resume", "last", *fixed)
    assert output == [
        f"--set node_groups.a.nodes=2: the nodes of a replica {text} (start another run)",
        f"--set node_groups.a.max_replicas=4: the maximum of replicas {text} (start another run)",
        f"--set node_groups[1].replicas=1: the number of replicas {text} (start another run)",
        f"--set processes_per_node=2: the processes of a node {text} (start another run)",
        f"--set logging.directory=x: the folder of the output {text} (start another run)",
        "--set suspend=true: the run is being resumed (leave it out, or do not resume train-1)",
    ]
    run = client.run("last")
    assert run.state == "SUSPENDED"
    sets = [
        "node_groups.b.min_success=1",
        "node_groups.b.startup_probe={file: /}",
        "node_groups.b.command=sh -c 'exit 1'",
        "startup=in_order",
        "success.others=wait",
        "success.groups=[a]",
        "node_groups.a.hostname=first",
    ]
    words = [word for flag in sets for word in ("--set", flag)]
    words += ["-e", "NAME=resumed", "--max-runtime", "1h"]
    assert muster("runs", "resume", "last", *words).returncode == 0
    assert run.wait(60).state == "SUCCEEDED"
    assert [node.state for node in run.nodes] == ["SUCCEEDED", "FAILED", "FAILED"]
    assert run.nodes[0].fqdn == "first"
    assert [record.message for record in run.logs(streams=["stdout"])] == ["resumed of a"]
    settings = {setting.path: (setting.origin, setting.value) for setting in run.settings()}
    assert settings["max_runtime"] == ("override", 3600.0)
    assert settings["success.groups"] == ("override", ["a"])
    assert settings["node_groups[a].env.NAME"] == ("override", "resumed")
    assert settings["node_groups[a].resources"][0] == "job"


def test_options_of_a_run_describe_a_new_job(client: Client) -> None:
    assert muster("run", "--network", "shared", "--", "true").returncode == 0
    settings = {setting.path: setting.origin for setting in client.run("last").settings()}
    assert settings["network"] == "job"
    assert "overridden for this run" not in muster("runs", "show", "last").stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--only", "1,3"], "--only 1,3: {} --set node_groups.a.only=1,3)"),
        (["--parallelism", "2"], "--parallelism 2: {} --set node_groups.a.parallelism=2)"),
        (
            ["--array", "lr=1, 2", "--array", "n=0..9", "--sample", "3", "--parallelism", "2"],
            "--array: {} --set node_groups.a.array.lr='1, 2' --set node_groups.a.array.n=0..9 "
            "--set node_groups.a.array.sample=3 --set node_groups.a.parallelism=2)",
        ),
        (["--sample", "3"], "--sample 3: {} --set node_groups.a.array.sample=3)"),
        (["--array", "sets.csv"], "--array: {} --set node_groups.a.array.file={folder}/sets.csv)"),
    ],
)
def test_an_array_of_a_job_with_several_groups_names_its_group(
    words: list[str], error: str, tmp_path: Path
) -> None:
    (tmp_path / "sets.csv").write_text("lr\n1\n")
    text = error.format("the job has the groups a, b (name the group:", folder=tmp_path)
    assert errors_of("run", "job.yaml", *words) == [text]


def test_the_flags_that_an_error_names_are_those_of_an_array(tmp_path: Path) -> None:
    words = ["--set", "node_groups.a.array.lr=1, 2", "--set", "node_groups.a.parallelism=1"]
    assert "replica 0: lr=1" in output_of("explain", "job.yaml", *words)


JOBSET = """apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: long}
spec:
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {containers: [{name: c, image: a}]}}}}
"""


def test_options_without_effect_on_a_jobset_are_named(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(JOBSET)
    options = ["--env A=1", "--env w:B=1", "--max-restarts 3", "--set resources.cpus=2"]
    words = [word for option in options for word in option.split()]
    errors = errors_of("explain", "long.yaml", "--engine", "kubernetes", *words)
    why = "has no effect on a JobSet that is run as it is"
    assert sorted(line.partition(": ")[0] for line in errors if why in line) == [
        "--env A",
        "--env w:B",
        "--max-restarts 3",
        "--set resources.cpus=2",
    ]
    assert len(errors) == 4
