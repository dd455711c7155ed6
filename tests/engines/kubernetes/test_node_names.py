"""Names of nodes resolve in pods: they are in the hosts file of each."""

from __future__ import annotations

import pytest

from engines.kubernetes.conftest import StartJob
from support.kube import Cluster
from support.kube_runs import pod_of

pytestmark = pytest.mark.slow

#: Prints the lines of nodes. HOME is the pod's folder, as in `support.kube`.
PRINT = "sed -n '/Muster/,$s/^[0-9]/at &/p' $HOME/etc-hosts"


def test_names_of_a_job_resolve_in_its_pods(cluster: Cluster, start: StartJob) -> None:
    job = start(first=PRINT, subdomain="js", namespace="a", failure={"max_restarts": 3})
    job.until_up(1, 1)
    job.until_ready()
    own = "node-{0}.js.a.svc.cluster.local node-{0} node-{0}.js.a.svc node-{0}.js.a node-{0}.js"
    shared = "js.a.svc.cluster.local js.a.svc js.a js"
    lines = [
        f"at {node.address} {own.format(node.rank)} {shared}" for node in job.run.refresh().nodes
    ]
    assert sorted(job.lines("at ")) == sorted(2 * lines)

    cluster.storage.delete("pods", "default", pod_of(cluster, job, 1)["metadata"]["name"])
    job.until_up(2, 2)
    # the new pod has them, and the one that was kept has them once
    assert sorted(job.lines("at ")) == sorted(4 * lines)
    assert job.end() == "SUCCEEDED"
