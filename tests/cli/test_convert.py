"""`muster convert`, and manifests in place of specs."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.client import api
from support import command

MANIFEST = """\
apiVersion: v1
kind: Namespace
metadata:
  name: team
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: NAME
spec:
  replicatedJobs:
  - name: workers
    template:
      spec:
        parallelism: 2
        completions: 2
        backoffLimit: 0
        template:
          spec:
            nodeSelector: {disk: fast}
            containers:
            - name: main
              command: [sh, -c, 'echo $JOB_COMPLETION_INDEX of $(hostname)']
"""


def muster(*args: str, code: int = 0, **options: Any) -> subprocess.CompletedProcess[str]:
    return command.muster(*args, code=code, **options)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "jobset.yaml"
    path.write_text(MANIFEST.replace("NAME", "demo"))
    return path


def test_a_manifest_becomes_a_spec(manifest: Path) -> None:
    done = muster("convert", str(manifest))
    assert yaml.safe_load(done.stdout) == {
        "name": "demo",
        "node_groups": [
            {
                "name": "workers",
                "nodes": 2,
                "command": ["sh", "-c", "echo $JOB_COMPLETION_INDEX of $(hostname)"],
                "kubernetes": {"node_selector": {"disk": "fast"}},
                "mounts": [{"source": "scratch:incarnation/tmp", "path": "/tmp"}],
                "hostname": "demo-workers-${replica}-${index}",
                "node_env": {"JOB_COMPLETION_INDEX": "${index}"},
            }
        ],
        "grace_period": "30s",
        "subdomain": "demo",
        "namespace": "default",
        "clean_env": True,
    }
    assert done.stderr.splitlines() == [
        f"note: Namespace team ({manifest}:1) is not applied: `kubectl apply` does",
    ]


def test_a_spec_becomes_a_manifest(tmp_path: Path) -> None:
    spec, output = tmp_path / "job.yaml", tmp_path / "jobset.yaml"
    spec.write_text("name: demo\ncommand: sleep 1\nnodes: 2\nkeep_attempts: 3\nimage: busybox\n")
    done = muster("convert", str(spec), "--output", str(output))
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "note: keep_attempts: the logs of earlier pods are not kept",
        "note: clean_env: pods get the variables of the manifest and of their image, no others",
        "note: subdomain: the JobSet gets subdomain demo, so that pod names resolve",
        "note: node_groups[workers].hostname: nodes are named "
        "demo-workers-REPLICA-INDEX in the JobSet",
    ]
    data = yaml.safe_load(output.read_text())
    assert data["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 2
    assert muster("convert", str(output), "--to", "jobset").stdout == output.read_text()


def test_what_a_manifest_needs_before_it_can_be_used_is_said_first(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    spec = tmp_path / "job.yaml"
    spec.write_text("name: demo\nartifact: train.py\nkeep_attempts: 3\n")
    lines = muster("convert", str(spec), "--to", "jobset").stderr.splitlines()
    group = "node_groups[workers]"
    assert lines[:3] == [
        f"warning: {group}.image: is missing, and Kubernetes requires one",
        f"warning: {group}.command: is missing: the image must have the code and a command",
        "note: keep_attempts: the logs of earlier pods are not kept",
    ]
    assert not any(line.startswith("warning: ") for line in lines[2:])


def test_one_of_several_manifests_is_chosen_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(MANIFEST.replace("NAME", "one"))
    (tmp_path / "b.yaml").write_text(MANIFEST.replace("NAME", "two"))
    assert muster("convert", f"{tmp_path}#two").stdout.startswith("name: two\n")
    wrong = muster("convert", str(tmp_path), code=2).stderr
    assert "there are 2 jobs here: one, two (name one: " in wrong


def test_an_unwritable_output_is_refused(manifest: Path, tmp_path: Path) -> None:
    wrong = muster("convert", str(manifest), "--output", str(tmp_path / "no" / "x"), code=2)
    assert wrong.stderr.splitlines()[-1].endswith("No such file or directory")


def test_a_folder_of_manifests_runs_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(MANIFEST.replace("NAME", "one"))
    (tmp_path / "b.yaml").write_text(MANIFEST.replace("NAME", "two"))
    done = muster("run", str(tmp_path))
    assert sorted(line.partition(" | ")[2] for line in done.stdout.splitlines()) == [
        "0 of one-workers-0-0",
        "0 of two-workers-0-0",
        "1 of one-workers-0-1",
        "1 of two-workers-0-1",
    ]
    assert "note: nodeSelector is used by engine kubernetes only\n" in done.stderr


def test_explain_shows_notes(manifest: Path) -> None:
    output = muster("explain", str(manifest)).stdout
    assert "note: nodeSelector is used by engine kubernetes only\n" in output


@pytest.mark.parametrize("flag", ["--detach", "--suspend"])
def test_notes_are_printed_when_detached(manifest: Path, flag: str) -> None:
    done = muster("run", str(manifest), flag)
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert notes[1] == "note: nodeSelector is used by engine kubernetes only"
    assert len(done.stdout.splitlines()) == 1
    muster("runs", "cancel", "last")


def test_notes_reach_the_python_api(manifest: Path, own_home: Path) -> None:
    run = api.run(manifest, home=own_home)
    assert "nodeSelector is used by engine kubernetes only" in run.notes
    assert run.wait(60).state == "SUCCEEDED"


def test_explain_shows_dependencies_and_differences(tmp_path: Path) -> None:
    job = yaml.safe_load(MANIFEST.replace("NAME", "demo").partition("---\n")[2])
    (workers,) = job["spec"]["replicatedJobs"]
    main = workers["template"]["spec"]["template"]["spec"]["containers"][0]
    first = copy.deepcopy(workers) | {"name": "data"}
    workers["dependsOn"] = [{"name": "data", "status": "Complete"}]
    main["args"] = ["--rank=$(JOB_COMPLETION_INDEX)"]
    job["spec"]["replicatedJobs"] = [first, workers]
    path = tmp_path / "jobset.yaml"
    path.write_text(yaml.dump(job))
    output = muster("explain", str(path)).stdout
    assert "startup: workers when data has succeeded\n" in output
    assert " --rank=0\n  arguments that differ on each node: '--rank=${index}'\n" in output


def test_flags_that_describe_the_job_are_refused(manifest: Path) -> None:
    wrong = muster("run", "--name", "other", str(manifest), code=2).stderr
    assert "describes the job already" in wrong


def test_formats_are_imported_only_when_used(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    code = (
        "import sys; from muster.client.target import notes_for, single_targets, spec_for\n"
        "import muster.cli.main\n"
        f"target = {str(script)!r}\n"
        "single_targets(target); notes_for(target); spec_for(target, None, {})\n"
        "sys.exit(any(name.startswith('muster.spec.formats') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.embedded("mounts a directory of this machine")
def test_restarts_of_a_run_that_is_not_followed_yet_are_printed(tmp_path: Path) -> None:
    """The second run is followed after the first has ended; by then it has a second attempt."""
    done = tmp_path / "done"
    first = f"until test -e {done}; do sleep 0.01; done"
    second = f"echo try $MUSTER_ATTEMPT; test $MUSTER_ATTEMPT = 1 || exit 1; touch {done}"
    file = tmp_path / "both.yaml"
    again = "  failurePolicy: {maxRestarts: 1}\n  replicatedJobs:"
    texts = []
    for name, script in (("one", first), ("two", second)):
        data = MANIFEST.replace("NAME", name).replace(
            "echo $JOB_COMPLETION_INDEX of $(hostname)", "X"
        )
        data = data.replace("parallelism: 2\n        completions: 2", "backoffLimit: 0")
        data = data.replace(
            "        backoffLimit: 0\n        backoffLimit: 0", "        backoffLimit: 0"
        )
        texts.append(data.replace("'X'", repr(script)).replace("  replicatedJobs:", again))
    # both programs must see the shared folder: /tmp is private to each
    here = f"volumes: [{{name: here, hostPath: {{path: {tmp_path}}}}}]"
    text = "---\n".join(texts).replace("nodeSelector: {disk: fast}", here)
    seen = f"volumeMounts: [{{name: here, mountPath: {tmp_path}}}]\n              command:"
    file.write_text(text.replace("command:", seen))
    result = muster("run", str(file))
    assert [line for line in result.stdout.splitlines() if "try" in line] == [
        "workers/0 | try 0",
        "workers/0 | try 1",
    ]
    assert "-- attempt 1 --" in result.stderr


def test_a_format_of_other_commands_is_not_a_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("command: hostname\n")
    done = muster("convert", "job.yaml", "-o", "yaml", code=2, cwd=tmp_path)
    assert "--output: -o names a file here, and yaml is a format of other commands" in done.stderr
    assert not (tmp_path / "yaml").exists()


# --- what an engine applies

APPLIED = """\
name: demo
command: [sleep, "1"]
nodes: 2
failure: {max_restarts: 3}
"""


def test_what_an_engine_applies_is_what_explain_shows(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(APPLIED)
    engine = ("--engine", "kubernetes")
    done = muster("convert", "job.yaml", "--to", "jobset", *engine, cwd=tmp_path)
    objects = [*yaml.safe_load_all(done.stdout)]
    comment, _, made = done.stdout.partition("\n")
    assert comment == (
        "# What engine kubernetes applies. Apply it with `muster run job.yaml --engine kubernetes`;"
        " kubectl cannot, as *** stands for what each run has of its own."
    )
    assert [one["kind"] for one in objects] == ["JobSet", "ConfigMap"]
    assert set(objects[1]["binaryData"].values()) == {"***"}
    explained = muster("explain", "job.yaml", *engine, cwd=tmp_path).stdout
    # each run has an id, which names its objects
    run, other = objects[0]["metadata"]["labels"]["muster.run/id"], _run_id(explained)
    for text in made.split("---\n"):
        indented = "".join(f"    {line}\n" for line in text.replace(run, other).splitlines())
        assert indented in explained


AS_IS = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: NAME}
spec:
  replicatedJobs:
  - name: w
    template: {spec: {template: {spec: {containers: [{name: m, image: busybox}]}}}}
"""


@pytest.mark.parametrize("place", ["folder", "file"])
def test_what_an_engine_applies_for_several_manifests(tmp_path: Path, place: str) -> None:
    texts = {name: AS_IS.replace("NAME", name) for name in ("one", "two")}
    target = tmp_path / "jobs"
    if place == "folder":
        target.mkdir()
        for name, text in texts.items():
            (target / f"{name}.yaml").write_text(text)
    else:
        target = target.with_suffix(".yaml")
        target.write_text("---\n".join(texts.values()))
    done = muster("convert", target.name, "--engine", "kubernetes", code=0, cwd=tmp_path)
    objects = [*yaml.safe_load_all(done.stdout)]
    assert done.stdout.partition("\n")[0] == (
        "# What engine kubernetes applies. Apply it with "
        f"`muster run {target.name} --engine kubernetes`, or with `kubectl apply`."
    )
    found = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert found == [("JobSet", "one"), ("JobSet", "two")]
    one = muster("convert", f"{target.name}#two", "--engine", "kubernetes", code=0, cwd=tmp_path)
    assert [made["metadata"]["name"] for made in yaml.safe_load_all(one.stdout)] == ["two"]


CLUSTER = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: demo, labels: {kueue.x-k8s.io/queue-name: team}}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        template:
          spec:
            priorityClassName: high
            volumes: [{name: login, secret: {secretName: registry}}]
            containers:
            - name: w
              image: busybox
              command: [train]
              env:
              - {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
              volumeMounts: [{name: login, mountPath: /login}]
"""


def test_what_only_a_cluster_has_is_kept_by_name(tmp_path: Path) -> None:
    (tmp_path / "jobset.yaml").write_text(CLUSTER)
    done = muster("convert", "jobset.yaml", cwd=tmp_path)
    job = yaml.safe_load(done.stdout)
    assert job["kueue"] == {"queue": "team"}
    ((group,), source) = job["node_groups"], yaml.safe_load(CLUSTER)
    (rj,) = source["spec"]["replicatedJobs"]
    pod = rj["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    node = {"name": "node", **{name: container[name] for name in ("env", "volumeMounts")}}
    assert group["kubernetes"] == {
        "priority_class": "high",
        "pod": {"spec": {"containers": [node], "volumes": pod["volumes"]}},
    }
    assert (
        "note: variable TOKEN is used by engine kubernetes only: Secret hub is not in this file"
        in (done.stderr.splitlines())
    )
    (tmp_path / "job.yaml").write_text(done.stdout)
    back = yaml.safe_load(muster("convert", "job.yaml", cwd=tmp_path).stdout)
    assert back["metadata"]["labels"] == source["metadata"]["labels"]
    (rj,) = back["spec"]["replicatedJobs"]
    again = rj["template"]["spec"]["template"]["spec"]
    assert again["priorityClassName"] == "high"
    assert again["volumes"] == pod["volumes"]
    assert again["containers"][0]["env"] == container["env"]
    wrong = muster("run", "jobset.yaml", code=2, cwd=tmp_path).stderr
    assert "there is no Secret 'hub' in jobset.yaml" in wrong


def test_the_value_of_a_secret_of_the_cluster_cannot_be_an_argument(tmp_path: Path) -> None:
    text = CLUSTER.replace("command: [train]", "command: [train, $(TOKEN)]")
    (tmp_path / "jobset.yaml").write_text(text)
    wrong = muster("convert", "jobset.yaml", code=2, cwd=tmp_path).stderr
    assert "refers to TOKEN, whose value only the cluster knows: Secret hub is not in this" in wrong


def _run_id(explained: str) -> str:
    (found, *_) = (line for line in explained.splitlines() if "muster.run/id: " in line)
    return found.partition(": ")[2]


def test_only_engines_that_apply_manifests_are_asked(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(APPLIED)
    wrong = muster("convert", "job.yaml", "--engine", "local", code=2, cwd=tmp_path).stderr
    assert "engine local applies no manifests" in wrong
    given = ("--to", "muster", "--engine", "kubernetes")
    wrong = muster("convert", "job.yaml", *given, code=2, cwd=tmp_path).stderr
    assert "conflicts with --to muster" in wrong


def test_directories_of_machines_are_not_looked_for_here(tmp_path: Path) -> None:
    """A patch has the volume; other engines use the directory."""
    volumes = "[{name: login, hostPath: {path: /nowhere/data}}]"
    text = CLUSTER.replace("[{name: login, secret: {secretName: registry}}]", volumes)
    (tmp_path / "jobset.yaml").write_text(text)
    muster("convert", "jobset.yaml", "--output", "job.yaml", cwd=tmp_path)
    applied = muster("convert", "job.yaml", "--engine", "kubernetes", cwd=tmp_path).stdout
    jobset, _ = yaml.safe_load_all(applied)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert {"name": "login", "hostPath": {"path": "/nowhere/data"}} in pod["volumes"]
    assert {"name": "login", "mountPath": "/login"} in pod["containers"][0]["volumeMounts"]
    wrong = muster("explain", "job.yaml", "--engine", "local", code=2, cwd=tmp_path).stderr
    assert "/nowhere/data not found" in wrong
