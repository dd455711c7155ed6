"""Labels and annotations of a JobSet: kept for the conversion back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from muster.errors import InvalidInput
from muster.spec.formats.convert import convert_file
from muster.spec.formats.manifests import read_manifest
from muster.spec.reader import read_spec

JOBSET = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: train
  labels:
    kueue.x-k8s.io/queue-name: team
    kueue.x-k8s.io/priority-class: high
  annotations:
    alpha.jobset.sigs.k8s.io/exclusive-topology: rack
    alpha.jobset.sigs.k8s.io/node-selector: "true"
spec:
  replicatedJobs:
  - name: driver
    template:
      metadata:
        annotations:
          alpha.jobset.sigs.k8s.io/exclusive-topology: zone
      spec:
        completions: 1
        parallelism: 1
        template:
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 30
            containers:
            - {name: driver, image: train, command: [train]}
  - name: workers
    replicas: 2
    template:
      spec:
        completions: 4
        parallelism: 4
        template:
          metadata:
            labels:
              kueue.x-k8s.io/podset: workers
              team: a
            annotations:
              kueue.x-k8s.io/podset-required-topology: rack
              kueue.x-k8s.io/pod-group-total-count: "9"
              example.com/note: for people
          spec:
            restartPolicy: Never
            terminationGracePeriodSeconds: 30
            containers:
            - {name: workers, image: train, command: [train]}
"""


def metadata(jobset: str) -> list[object]:
    """Labels and annotations of the JobSet, and of each Job and its pods."""
    data = yaml.safe_load(jobset)
    jobs = [rj["template"] for rj in data["spec"]["replicatedJobs"]]
    templates = [(job.get("metadata"), job["spec"]["template"].get("metadata")) for job in jobs]
    return [{k: v for k, v in data["metadata"].items() if k != "namespace"}, *templates]


@pytest.mark.shows("jobset/exclusive-placement", "jobset/kueue-annotations")
def test_metadata_survive_a_round_trip(tmp_path: Path) -> None:
    there, back = tmp_path / "jobset.yaml", tmp_path / "spec.yaml"
    there.write_text(JOBSET)
    text, notes, *_ = convert_file(there, None, "muster")
    assert not [note for note in notes if "lost" in note and ("label" in note or "annot" in note)]
    back.write_text(text)
    assert read_spec(back).node_groups == read_manifest(there).spec.node_groups
    again, losses, *_ = convert_file(back, None, "jobset")
    assert metadata(again) == metadata(JOBSET)
    assert losses == []


@pytest.mark.shows("jobset/exclusive-placement", "jobset/kueue-annotations")
def test_unused_metadata_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "jobset.yaml"
    path.write_text(JOBSET)
    why = "is used by engine kubernetes only"
    output = read_manifest(path).notes
    assert f"annotation alpha.jobset.sigs.k8s.io/node-selector {why}" in output
    assert f"label kueue.x-k8s.io/queue-name {why}" in output
    assert f"annotation kueue.x-k8s.io/podset-required-topology (workers) {why}" in output
    assert not any("example.com/note" in note for note in output), "a program may refer to it"


def test_metadata_that_kubernetes_refuses_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "command: echo\nannotations: {'a b': c}\nnode_groups:\n- name: w\n"
        "  pod_metadata: {labels: {x: 'a b', /y: z}, annotations: {x: 'a b'}, label: {}}\n"
        "  job_metadata: {labels: [x]}\n"
    )
    with pytest.raises(InvalidInput) as caught:
        read_spec(path)
    problems = [
        str(problem).partition(": ")[2].partition(" (")[0] for problem in caught.value.problems
    ]
    key = "is not a valid key of a label or annotation"
    assert problems == [
        f"annotations.a b: 'a b' {key}",
        "node_groups[0].pod_metadata.label: unknown field",
        "node_groups[0].pod_metadata.labels.x: 'a b' is not a valid value of a label",
        f"node_groups[0].pod_metadata.labels./y: '/y' {key}",
        "node_groups[0].job_metadata.labels: must be a mapping, not a list",
    ]
