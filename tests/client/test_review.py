"""All problems of a run are reported at once, whichever stage finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.spec.override_flags import changes_from_flags


def refused(folder: Path, text: str, **flags: object) -> list[str]:
    """The problems of a spec, without hints."""
    (folder / "job.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        Client(folder / "home").prepare(folder / "job.yaml", changes_from_flags(**flags))
    return [
        str(problem._replace(hint="")).replace(f"{folder}/", "")
        for problem in caught.value.problems
    ]


def test_problems_of_every_stage_are_reported_at_once(tmp_path: Path) -> None:
    text = """
artifact: trian.py
framework: pytorch
framework_options: {min_nodes: 9}
grace_period: soon
requirements: [nope.txt]
mounts:
  - source: /nowhere-at-all
failre: {max_restarts: 3}
node_groups:
  - name: a
    nodes: 2
    resources: {memory: 9000TiB}
  - name: b
    hostname: "${nope}"
    mounts: [{source: neither}]
"""
    assert refused(tmp_path, text, nodes=["c=3"], sets=["args["], env=["UNSET_HERE"]) == [
        "--set: 'args[' is not PATH=VALUE",
        "--env: UNSET_HERE is not set in your environment",
        "--nodes c=3: no group named 'c'",
        "job.yaml:2: artifact: trian.py not found",
        "job.yaml:4: framework_options.min_nodes: applies to elastic training only",
        "job.yaml:5: grace_period: 'soon' is not a duration",
        "job.yaml:6: requirements: nope.txt not found",
        "job.yaml:8: mounts[0].source: /nowhere-at-all not found",
        "job.yaml:9: failre: unknown field",
        *(
            line
            for line in refused(tmp_path, text)
            if line.startswith("job.yaml:13: node_groups[0].resources.memory: a node needs")
        ),
        "job.yaml:15: node_groups[1].hostname: no placeholder named ${nope}",
        "job.yaml:16: node_groups[1].mounts[0].source: neither not found",
    ]


WITH_LINES = {
    "a missing artifact": (
        "name: x\nnodes: 2\nartifact: trian.py\n",
        ["job.yaml:3: artifact: trian.py not found"],
    ),
    "an entry point": (
        "artifact: .\nentrypoint: mian.py\n",
        ["job.yaml:2: entrypoint: mian.py is not in FOLDER"],
    ),
    "a framework": (
        "command: x\nnodes: 2\nframework: pytroch\n",
        ["job.yaml:3: framework: no framework named 'pytroch'"],
    ),
    "settings inherited by all groups are reported once": (
        "command: x\nmounts: [{source: /nowhere-at-all}]\nshape: nope\n"
        "node_groups: [{name: a}, {name: b}]\n",
        [
            "job.yaml:2: mounts[0].source: /nowhere-at-all not found",
            "job.yaml:3: shape: no shape named 'nope'",
        ],
    ),
}


@pytest.mark.parametrize("case", WITH_LINES)
def test_each_problem_names_its_line(tmp_path: Path, case: str) -> None:
    text, expected = WITH_LINES[case]
    assert refused(tmp_path, text) == [line.replace("FOLDER", str(tmp_path)) for line in expected]


WITHOUT_CONSEQUENCES = {
    "a group without a name that others depend on": (
        "command: x\nnode_groups:\n- nodes: 2\n- {name: a, depends_on: [{group: b}]}\n",
        ["job.yaml:3: node_groups[0].name: is missing"],
    ),
    "the framework's name": (
        "command: x\nframwork: dask\nframework_options: {x: 1}\n",
        ["job.yaml:2: framwork: unknown field"],
    ),
    "the entry point's name": (
        "artifact: .\nentrypont: main.py\n",
        ["job.yaml:2: entrypont: unknown field"],
    ),
    "the artifact": (
        "artifact: {a: b}\nentrypoint: main.py\nrequirements: []\n",
        ["job.yaml:1: artifact: must be text, not a mapping"],
    ),
    "the number of nodes": (
        "command: x\nframework: pytorch\nnodes: two\n"
        "framework_options: {elastic: true, min_nodes: 2}\n",
        ["job.yaml:3: nodes: must be a whole number, not 'two'"],
    ),
    "an element of a list": (
        "command: x\nnode_groups:\n- {name: a}\n- [b]\nsuccess: {groups: [b]}\n"
        "mounts: [{source: /tmp, link: []}]\n",
        [
            "job.yaml:4: node_groups[1]: must be a mapping, not a list",
            "job.yaml:6: mounts[0].link: must be text, not a list",
        ],
    ),
    "nothing to run": (
        "framework: pytorch\nnodes: 2\n",
        ["job.yaml:1: nothing to run"],
    ),
}


@pytest.mark.parametrize("case", WITHOUT_CONSEQUENCES)
def test_consequences_of_another_problem_are_not_reported(tmp_path: Path, case: str) -> None:
    text, expected = WITHOUT_CONSEQUENCES[case]
    assert refused(tmp_path, text) == expected


def test_problems_of_overrides_have_no_line_of_the_file(tmp_path: Path) -> None:
    text = "command: x\nartifact: nope.py\nresources: {memory: 1GiB}\n"
    memory, artifact = refused(tmp_path, text, sets=["resources.memory=9000TiB"])
    assert memory.startswith("--set resources.memory=9000TiB: a node needs 8.8PiB")
    assert artifact == "job.yaml:2: artifact: nope.py not found"
    # an invalid override also hides problems of the value it replaces
    text = "command: x\nresources: {memory: 9000TiB}\n"
    assert refused(tmp_path, text, sets=["resources.memory=lots"]) == [
        "--set resources.memory=lots: 'lots' is not a size"
    ]


def test_a_refused_run_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)")
    refused(tmp_path, "artifact: main.py\nnodes: x\n")
    refused(tmp_path, "artifact: main.py\nresources: {memory: 9000TiB}\n")
    kept = [path for path in (tmp_path / "home" / "artifacts").rglob("*") if path.is_file()]
    assert kept == []


def test_problems_of_a_manifest_have_its_paths_and_lines(tmp_path: Path) -> None:
    text = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: big}
spec:
  replicatedJobs:
  - name: none
    replicas: 0
    template: {spec: {template: {spec: {containers: [{name: c, command: [x]}]}}}}
  - name: workers
    template:
      spec:
        template:
          spec:
            containers:
            - name: c
              command: [hostname]
              resources:
                limits: {memory: 9000Ti}
"""
    (memory,) = refused(tmp_path, text)
    path = "spec.replicatedJobs[1].template.spec.template.spec.containers[0].resources"
    assert memory.startswith(f"job.yaml:17: {path}: a node needs 8.8PiB")
