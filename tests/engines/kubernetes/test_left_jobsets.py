"""JobSets that a run cannot delete as it ends: the run says so, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.kubernetes.conftest import StartJob
from engines.kubernetes.test_refused_runs import grant
from support.command import json_of, muster, output_of
from support.faults import until
from support.kube import Cluster
from support.kube.access import User
from support.kube_engine import add_engine
from support.kube_runs import PATIENCE, Job, until_nothing_is_left

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow

TOKEN = "token-of-ana"
LACKS = "its Role there lacks {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [delete]}"


def left_of(job: Job) -> str:
    """What is said of the JobSet of a run that may not be deleted."""
    name = f"demo-1-{job.run.id}"
    return (
        f"JobSet {name} is left in the cluster: ana may not delete jobsets in namespace default: "
        f"{LACKS}; `kubectl delete jobset {name} -n default` deletes it"
    )


@pytest.fixture
def undeleted(cluster: Cluster, own_home: Path) -> Cluster:
    """A cluster whose JobSets may not be deleted."""
    grant(cluster, own_home, ("delete", "jobsets"))
    return cluster


def clear(cluster: Cluster) -> None:
    """Somebody else deletes what is left."""
    for name in {one["metadata"]["name"] for one in cluster.storage.listed("jobsets", "default")}:
        cluster.storage.delete("jobsets", "default", name)


def test_a_canceled_run_says_that_its_jobset_is_left(undeleted: Cluster, start: StartJob) -> None:
    job = start()
    job.until_up(1, 1)
    done = muster("cancel", "last", code=0)
    assert done.stdout == "demo-1 is CANCELED\n"
    assert left_of(job) in done.stderr
    assert left_of(job) in output_of("status", "last")
    assert left_of(job) in output_of("events", "last")
    assert left_of(job) in json_of("status", "last", "--json")["details"]
    clear(undeleted)


def test_a_suspended_run_says_that_its_jobset_is_left(
    undeleted: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start()
    job.until_up(1, 1)
    done = muster("runs", "suspend", "last", code=0)
    assert done.stdout == "demo-1 is SUSPENDED\n"
    assert left_of(job) in done.stderr
    assert left_of(job) in output_of("status", "last")
    grant(undeleted, own_home, ("", ""))  # the next supervisor tries it again
    job.run.resume()
    job.until_up(2, 2)
    assert job.end() == "SUCCEEDED"
    assert job.run.details == ""
    until_nothing_is_left(undeleted)


def test_a_run_that_has_succeeded_says_that_its_jobset_is_left(
    undeleted: Cluster, start: StartJob
) -> None:
    job = start()
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"
    assert left_of(job) in output_of("status", "last")
    clear(undeleted)


def log_in(cluster: Cluster, home: Path) -> None:
    """Credentials of a user, which expire when the token is revoked."""
    cluster.server.access.grant(TOKEN, User("ana"))
    config = cluster.write_kubeconfig(TOKEN, path=home / "kubeconfig")
    add_engine(home, cluster, kubeconfig=str(config))


EXPIRED = "cannot be deleted: the cluster does not accept the credentials (401 Unauthorized)"


def test_credentials_that_expire_before_a_run_is_canceled(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    log_in(cluster, own_home)
    job = start()
    job.until_up(1, 1)
    cluster.server.access.revoke(TOKEN)
    job.run.cancel()
    until(lambda: EXPIRED in output_of("status", "last"), "it is said", PATIENCE)
    assert EXPIRED in output_of("events", "last")
    assert "SIGKILL" not in output_of("status", "last")
    done = muster("cancel", "--force", "last", code=0)
    assert done.stdout == "demo-1 is CANCELED\n"
    assert f"JobSet demo-1-{job.run.id} is left in the cluster: the cluster does not" in done.stderr
    clear(cluster)


def test_a_run_that_is_being_canceled_ends_when_credentials_are_renewed(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    log_in(cluster, own_home)
    job = start()
    job.until_up(1, 1)
    cluster.server.access.revoke(TOKEN)
    job.run.cancel()
    until(lambda: EXPIRED in job.story(), "it is said", PATIENCE)
    log_in(cluster, own_home)
    assert str(job.run.wait(PATIENCE).state) == "CANCELED"
    assert job.run.details == "canceled by user"
    until_nothing_is_left(cluster)


def test_by_force_a_run_ends_though_its_nodes_cannot_be_reached_either(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    log_in(cluster, own_home)
    job = start()
    job.until_up(1, 1)
    cluster.server.access.revoke(TOKEN)
    cluster.server.drop_connections()
    job.until_said("cannot be reached: the cluster does not accept the credentials")
    done = muster("cancel", "--force", "last", code=0)
    assert done.stdout == "demo-1 is CANCELED\n"
    assert f"JobSet demo-1-{job.run.id} is left in the cluster: the cluster does not" in done.stderr
    clear(cluster)
