"""What a cluster refuses, and clusters that are not there: a run says so in one sentence, and
leaves nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engines.kubernetes.conftest import StartJob
from muster.engines.kubernetes.profile import read_settings
from muster.engines.kubernetes.role import role
from muster.engines.kubernetes.versions import Versions
from support.command import output_of
from support.faults import until
from support.kube import Cluster
from support.kube.access import Rule
from support.kube.objects import Obj, Resource
from support.kube_engine import add_engine
from support.kube_runs import PATIENCE, Job, names, pod_of, until_nothing_is_left, writes

#: They run real nodes in the double of a cluster.
pytestmark = pytest.mark.slow


def failed(job: Job) -> str:
    """Why a run has failed: it says so at once."""
    job.run.wait(PATIENCE)
    assert job.run.state == "FAILED"
    return job.run.details


def test_a_configuration_that_is_lost_before_the_run_begins(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """It was there when the run was submitted (see test_misconfigured.py for others)."""
    config = cluster.write_kubeconfig(path=own_home / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(config))
    job = start(failure={"max_restarts": 3}, suspend=True)
    config.unlink()
    job.run.resume()
    assert "there is no file" in failed(job)


def test_credentials_that_are_not_accepted(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    config = cluster.write_kubeconfig("no-token", path=own_home / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(config))
    assert "the cluster does not accept the credentials" in failed(start())


def test_a_namespace_that_does_not_exist(cluster: Cluster, start: StartJob, own_home: Path) -> None:
    config = cluster.write_kubeconfig(namespace="nowhere", path=own_home / "kubeconfig")
    add_engine(own_home, cluster, kubeconfig=str(config))
    assert "the cluster has no namespace nowhere" in failed(start())


# --- rights


def grant(cluster: Cluster, home: Path, without: tuple[str, str]) -> None:
    """The rights of the guide's Role, without a verb for a resource."""
    verb, resource = without
    rules = [
        Rule(
            []
            if verb == "*" and resource in rule["resources"]
            else [one for one in rule["verbs"] if one != verb or resource not in rule["resources"]],
            rule["resources"],
            rule["apiGroups"],
            "default",
        )
        for rule in role(read_settings({}), Versions())["rules"]
    ]
    cluster.grant("token-of-ana", "ana", tuple(rules))
    config = cluster.write_kubeconfig("token-of-ana", path=home / "kubeconfig")
    add_engine(home, cluster, kubeconfig=str(config))


@pytest.mark.parametrize("resource", ["jobsets", "configmaps"])
def test_a_right_that_is_missing(
    cluster: Cluster, start: StartJob, own_home: Path, resource: str
) -> None:
    grant(cluster, own_home, ("patch", resource))
    why = failed(start(failure={"max_restarts": 3}))
    group = "jobset.x-k8s.io" if resource == "jobsets" else '""'
    assert f"ana may not patch {resource} in namespace default: its Role there lacks" in why
    assert f"{{apiGroups: [{group}], resources: [{resource}], verbs: [patch]}}" in why
    until_nothing_is_left(cluster)


@pytest.mark.parametrize(
    ("verb", "resource", "verbs"),
    [
        ("*", "pods/exec", "get, create"),
        ("create", "pods/exec", "create"),
        ("list", "pods", "list"),
    ],
)
def test_the_right_to_see_or_reach_pods_is_missing(
    cluster: Cluster, start: StartJob, own_home: Path, verb: str, resource: str, verbs: str
) -> None:
    """Pods would run that nobody sees, or reaches: none is made."""
    grant(cluster, own_home, (verb, resource))
    why = failed(start(failure={"max_restarts": 3}))
    rule = f'{{apiGroups: [""], resources: [{resource}], verbs: [{verbs}]}}'
    assert f"nothing was applied, as your Role in namespace default lacks {rule}" in why
    assert not [one for one in cluster.calls if one.verb == "patch"]
    assert cluster.left() == []


def test_the_right_to_reach_pods_is_lost_while_a_run_waits(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    """It may be granted again."""
    grant(cluster, own_home, ("", ""))
    job = start(suspend=True)
    allowed: list[Resource] = []

    def revoke(resource: Resource, _new: Obj, old: Obj | None, _part: str) -> None:
        if resource.plural == "jobsets" and old is None and not allowed:
            allowed.append(resource)
            grant(cluster, own_home, ("*", "pods/exec"))

    cluster.storage.admissions.append(revoke)
    job.run.resume()
    rule = '{apiGroups: [""], resources: [pods/exec], verbs: [get, create]}'
    lacks = "ana may not get pods/exec in namespace default: its Role there lacks"
    job.until_said(f"{lacks} {rule}")
    assert "is starting the first nodes" not in output_of("status", "last")
    grant(cluster, own_home, ("", ""))
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"


# --- what is installed


@pytest.fixture
def cluster_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return getattr(request, "param", {})


@pytest.mark.parametrize("cluster_options", [{"jobset": None}], indirect=True, ids=["no-jobset"])
def test_a_cluster_without_jobset(cluster: Cluster, start: StartJob) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    lost = pod_of(cluster, job, 1)
    cluster.storage.delete("pods", "default", lost["metadata"]["name"])
    job.until_up(2, 2)
    assert pod_of(cluster, job, 1)["metadata"]["uid"] != lost["metadata"]["uid"]
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)


@pytest.mark.parametrize("cluster_options", [{"jobset": None}], indirect=True, ids=["no-jobset"])
def test_jobset_is_installed_while_a_run_has_jobs(
    cluster: Cluster, start: StartJob, own_home: Path
) -> None:
    job = start(failure={"max_restarts": 3})
    job.until_up(1, 1)
    cluster.install_jobset()
    job.kill_supervisor(own_home)
    again = "(group workers) can be reached again"
    both = f"nodes 0-1 {again}"
    until(
        lambda: both in job.story() or all(f"node {n} {again}" in job.story() for n in (0, 1)),
        both,
        PATIENCE,
    )
    for name in names(cluster, job):
        cluster.storage.delete("pods", "default", name)
    job.until_up(2, 2)
    assert "was deleted while no supervisor was running" not in job.story()
    assert ("patch", "jobsets") not in writes(cluster)
    second = start(name="second")
    second.until_up(1, 1)
    assert ("patch", "jobsets") in writes(cluster)
    assert second.end() == "SUCCEEDED"
    assert job.end() == "SUCCEEDED"
    until_nothing_is_left(cluster)


# --- webhooks


def test_a_refusal_with_two_causes(cluster: Cluster, start: StartJob) -> None:
    pod = "spec.replicatedJobs[0].template.spec.template.spec"
    message = (
        f'JobSet.jobset.x-k8s.io "demo" is invalid: [{pod}.containers[0].image: Invalid value: '
        f'" ": must not be blank, {pod}.containers[0].resources.limits[cpu]: Required value: '
        "must be a whole number]"
    )
    cluster.faults.add(verb="patch", resource="jobsets", status=422, message=message, times=9)
    job = start(resources={"cpus": 1}, failure={"max_restarts": 3})
    why = failed(job)
    assert 'image: Invalid value: " ": must not be blank' in why
    assert "resources.cpus: Required value: must be a whole number" in why
    assert sum(one.verb == "patch" for one in cluster.calls) == 1, "it is not tried again"


def test_a_policy_that_refuses_the_run(cluster: Cluster, start: StartJob) -> None:
    message = (
        'admission webhook "validate.policy.example.com" denied the request: images must come from '
        "registry.example.com"
    )
    cluster.faults.add(verb="patch", resource="jobsets", status=403, message=message, times=9)
    why = failed(start(failure={"max_restarts": 3}))
    assert "validate.policy.example.com: images must come from registry.example.com" in why
    assert sum(one.verb == "patch" for one in cluster.calls) == 1


def test_a_webhook_that_does_not_answer_for_a_while(cluster: Cluster, start: StartJob) -> None:
    message = (
        'Internal error occurred: failed calling webhook "validate.policy.example.com": failed to '
        'call webhook: Post "https://policy.example.svc:443/": connection refused'
    )
    cluster.faults.add(verb="patch", resource="jobsets", status=500, message=message, times=3)
    job = start()
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"


def test_a_webhook_that_refuses_pods(cluster: Cluster, start: StartJob) -> None:
    from support.kube.objects import ApiError

    allowed = False

    def admit(resource: Resource, new: Obj, old: Obj | None, _part: str) -> None:
        if resource.plural == "pods" and old is None and not allowed:
            text = 'admission webhook "policy.example.com" denied the request: not on a Sunday'
            raise ApiError(403, "Forbidden", text)

    cluster.storage.admissions.append(admit)
    job = start()
    job.until_it_waits_for("its pod cannot be created: policy.example.com: not on a Sunday")
    allowed = True
    job.until_up(1, 1)
    assert job.end() == "SUCCEEDED"
