"""Everything that is wrong with a run is said at once, whichever stage finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.spec.overrides import changes_from_flags


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def refused(folder: Path, text: str, **flags: object) -> list[str]:
    """What is said of a spec, less hints."""
    (folder / "job.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        Client(folder / "home").draft_for(folder / "job.yaml", changes_from_flags(**flags))
    return [
        str(problem._replace(hint="")).replace(f"{folder}/", "")
        for problem in caught.value.problems
    ]


def test_every_stage_at_once(folder: Path) -> None:
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
    assert refused(folder, text, nodes=["c=3"], sets=["args["], env=["UNSET_HERE"]) == [
        "--set: 'args[' is not PATH=VALUE",
        "--env: UNSET_HERE is not set in your environment",
        "--nodes c=3: no group named 'c'",
        "job.yaml:2: artifact: there is no trian.py",
        "job.yaml:4: framework_options.min_nodes: means something to elastic training only",
        "job.yaml:5: grace_period: 'soon' is not a duration",
        "job.yaml:6: requirements: there is no nope.txt",
        "job.yaml:8: mounts[0].source: there is no /nowhere-at-all",
        "job.yaml:9: failre: unknown field",
        *(
            line
            for line in refused(folder, text)
            if line.startswith("job.yaml:13: node_groups[0].resources.memory: a node needs")
        ),
        "job.yaml:15: node_groups[1].hostname: no placeholder named ${nope}",
        "job.yaml:16: node_groups[1].mounts[0].source: there is no neither",
    ]


ONE = {
    "a missing artifact": (
        "name: x\nnodes: 2\nartifact: trian.py\n",
        ["job.yaml:3: artifact: there is no trian.py"],
    ),
    "an entry point": (
        "artifact: .\nentrypoint: mian.py\n",
        ["job.yaml:2: entrypoint: mian.py is not in FOLDER"],
    ),
    "a framework": (
        "command: x\nnodes: 2\nframework: pytroch\n",
        ["job.yaml:3: framework: no framework named 'pytroch'"],
    ),
    "what all groups have from the job is said once": (
        "command: x\nmounts: [{source: /nowhere-at-all}]\nshape: nope\n"
        "node_groups: [{name: a}, {name: b}]\n",
        [
            "job.yaml:2: mounts[0].source: there is no /nowhere-at-all",
            "job.yaml:3: shape: no shape named 'nope'",
        ],
    ),
}


@pytest.mark.parametrize("case", ONE)
def test_each_has_its_line(folder: Path, case: str) -> None:
    text, expected = ONE[case]
    assert refused(folder, text) == [line.replace("FOLDER", str(folder)) for line in expected]


ALONE = {
    "a group without a name, that others wait for": (
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
    "how many nodes": (
        "command: x\nframework: pytorch\nnodes: two\n"
        "framework_options: {elastic: true, min_nodes: 2}\n",
        ["job.yaml:3: nodes: must be a whole number, not 'two'"],
    ),
    "one of a list": (
        "command: x\nnode_groups:\n- {name: a}\n- [b]\nsuccess: {groups: [b]}\n"
        "mounts: [{path: x}]\n",
        [
            "job.yaml:4: node_groups[1]: must be a mapping, not a list",
            "job.yaml:6: mounts[0].source: is missing",
        ],
    ),
    "nothing to run": (
        "framework: pytorch\nnodes: 2\n",
        ["job.yaml:1: nothing to run"],
    ),
}


@pytest.mark.parametrize("case", ALONE)
def test_nothing_is_said_that_only_follows(folder: Path, case: str) -> None:
    text, expected = ALONE[case]
    assert refused(folder, text) == expected


def test_what_a_run_changes_is_not_in_the_file(folder: Path) -> None:
    text = "command: x\nartifact: nope.py\nresources: {memory: 1GiB}\n"
    memory, artifact = refused(folder, text, sets=["resources.memory=9000TiB"])
    assert memory.startswith("--set resources.memory=9000TiB: a node needs 9216000.0 GiB")
    assert artifact == "job.yaml:2: artifact: there is no nope.py"
    # a broken change leaves what it was to replace unsaid, too
    text = "command: x\nresources: {memory: 9000TiB}\n"
    assert refused(folder, text, sets=["resources.memory=lots"]) == [
        "--set resources.memory=lots: 'lots' is not a size"
    ]


def test_nothing_is_kept_of_what_is_refused(folder: Path) -> None:
    (folder / "main.py").write_text("print(1)")
    refused(folder, "artifact: main.py\nnodes: x\n")
    refused(folder, "artifact: main.py\nresources: {memory: 9000TiB}\n")
    kept = [path for path in (folder / "home" / "artifacts").rglob("*") if path.is_file()]
    assert kept == []


def test_what_a_manifest_asks_for_is_said_where_it_stands_in_the_manifest(folder: Path) -> None:
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
    (memory,) = refused(folder, text)
    path = "spec.replicatedJobs[1].template.spec.template.spec.containers[0].resources"
    assert memory.startswith(f"job.yaml:17: {path}: a node needs 9216000.0 GiB")
