"""Programs get the variables of their container, such as those of a Secret of the cluster."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

import muster
from support.kube import Cluster
from support.kube_runs import PATIENCE

pytestmark = pytest.mark.slow  # they run real nodes in the double of a cluster

JOB = """\
name: secretive
engine: kubernetes
clean_env: CLEAN
command: [sh, -c, 'test "$TOKEN" = s3cret && test "$USER_NAME" = ana && test -z "$MINE"']
kubernetes:
  pod:
    spec:
      containers:
      - name: node
        env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}]
        envFrom: [{prefix: USER_, secretRef: {name: hub}}]
"""


@pytest.mark.parametrize("clean", ["true", "false"])
def test_variables_of_secrets_reach_programs(tmp_path: Path, cluster: Cluster, clean: str) -> None:
    data = {"token": b64encode(b"s3cret").decode(), "NAME": b64encode(b"ana").decode()}
    metadata = {"name": "hub", "namespace": "default"}
    cluster.storage.create("secrets", {"metadata": metadata, "data": data})
    path = tmp_path / "job.yaml"
    path.write_text(JOB.replace("CLEAN", clean))
    run = muster.run(path).wait(PATIENCE)
    cluster.storage.delete("secrets", "default", "hub")
    assert run.state == "SUCCEEDED", run.details
