"""JobSet's integration tests of its webhook, W01 to W19: what it fills in, and what it refuses.

A manifest is not kept and edited here: it is read, and what runs is a run of what it said. What may
change is what a suspended run may be told on resuming. Each refusal's words are in
tests/spec/formats/test_jobset_rules.py.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.overrides import overrides_from_mapping
from support.jobset import jobset, read, replicated


def refused(manifest: dict[str, Any]) -> str:
    """What is said of a manifest that cannot be."""
    with pytest.raises(InvalidInput) as caught:
        read(manifest)
    return "\n".join(map(str, caught.value.problems))


def depends(name: str, status: str) -> dict[str, Any]:
    return {"dependsOn": [{"name": name, "status": status}]}


@pytest.mark.shows("jobset/indexed-jobs")
@pytest.mark.parametrize(
    ("job", "env"),
    [
        pytest.param({}, {"JOB_COMPLETION_INDEX": "${index}"}, id="W01 given"),
        pytest.param({"completionMode": "NonIndexed"}, {}, id="W01 kept"),
    ],
)
def test_completion_mode(job: dict[str, Any], env: dict[str, str]) -> None:
    (group,) = read(jobset([replicated("a", job=job)])).spec.node_groups
    assert dict(group.node_env) == env


@pytest.mark.shows("jobset/network-defaults")
def test_W02_names_are_on_unless_they_are_turned_off() -> None:
    assert read(jobset()).spec.subdomain == "demo"
    assert read(jobset(network={})).spec.subdomain == "demo"
    assert read(jobset(network={"enableDNSHostnames": False})).spec.subdomain is None


@pytest.mark.parametrize("policy", [None, "", "OnFailure", "Never"])
def test_W03_a_restart_policy_is_not_needed(policy: str | None) -> None:
    """What failed starts again as retries and the failure policy say, whatever it is called."""
    manifest = jobset([replicated("a")])
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del pod["restartPolicy"]
    if policy:
        pod["restartPolicy"] = policy
    (group,) = read(manifest).spec.node_groups
    assert group.retries == 0


@pytest.mark.shows("jobset/success-operators")
def test_W06_success_is_of_all() -> None:
    success = read(jobset()).spec.success
    assert (success.when, success.groups) == ("all", ())


def test_W07_an_unknown_success_target() -> None:
    success = {"operator": "All", "targetReplicatedJobs": ["c"]}
    assert "there is no replicated Job 'c'" in refused(jobset(successPolicy=success))


def test_W08_replicas() -> None:
    assert "must be at least 0, not -1" in refused(jobset({"a": -1}))
    spec = read(jobset({"a": 0, "b": 1})).spec
    assert [group.name for group in spec.node_groups] == ["b"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("framework", "dask", id="framework"),
        pytest.param("entrypoint", "other.py", id="entrypoint"),
        pytest.param("git", {"url": "https://git.example.org/x"}, id="git"),
    ],
)
def test_W05_a_run_keeps_what_its_job_is(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match="a run cannot change it"):
        overrides_from_mapping({field: value})


def test_W11_rules_without_a_name() -> None:
    rules = [{"action": "FailJobSet", "targetReplicatedJobs": [name]} for name in ("a", "b")]
    rules[1]["name"] = "mine"
    made = read(jobset(failurePolicy={"rules": rules})).spec.failure.rules
    assert [rule.name for rule in made] == ["failurePolicyRule0", "mine"]


def test_W13_order_and_dependencies() -> None:
    jobs = [replicated("a"), replicated("b", **depends("a", "Ready"))]
    in_order = {"startupPolicyOrder": "InOrder"}
    any_order = {"startupPolicyOrder": "AnyOrder"}
    assert read(jobset(jobs, startupPolicy=any_order)).spec.startup == "parallel"
    assert "stands beside startupPolicy InOrder" in refused(jobset(jobs, startupPolicy=in_order))


def test_W14_the_first_depends_on_nothing() -> None:
    jobs = [replicated("a", **depends("b", "Ready")), replicated("b")]
    assert "has nothing before it" in refused(jobset(jobs))


def test_W15_an_unknown_status() -> None:
    jobs = [replicated("a"), replicated("b", **depends("a", "Running"))]
    assert "cannot be 'Running'" in refused(jobset(jobs))


def test_W16_nothing_to_run_is_refused() -> None:
    """JobSet takes it, and it never finishes."""
    assert "a JobSet without never finishes" in refused(jobset([]))


def test_W17_a_coordinator_with_too_long_an_address() -> None:
    manifest = jobset({"a": 1}, name="x" * 40, coordinator={"replicatedJob": "a"})
    assert "a label can have 63" in refused(manifest)


CLAIM = {"metadata": {"name": "data"}, "spec": {}}


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        pytest.param(
            [{"templates": [{"metadata": {"name": "data", "namespace": "x"}, "spec": {}}]}],
            "namespace: cannot be given",
            id="W18 a namespace",
        ),
        pytest.param([{"templates": []}] * 51, "there are 51 (50 are allowed)", id="W18 policies"),
        pytest.param(
            [{"templates": [{**CLAIM, "metadata": {"name": f"d{i}"}} for i in range(51)]}],
            "there are 51 (50 are allowed)",
            id="W18 templates",
        ),
    ],
)
def test_claims(policies: list[dict[str, Any]], said: str) -> None:
    assert said in refused(jobset(volumeClaimPolicies=policies))


@pytest.mark.parametrize(
    ("job", "said"),
    [
        pytest.param({"parallelism": 1}, "only 1 of 2 pods at a time", id="W19 unequal"),
        pytest.param(
            {"completionMode": "NonIndexed", "completions": None},
            "queue of work",
            id="W19 no index",
        ),
        pytest.param({"parallelism": 0}, "no pod would ever start", id="W19 less than one"),
    ],
)
def test_sizes(job: dict[str, Any], said: str) -> None:
    """JobSet refuses such a change; Muster such a manifest."""
    assert said in refused(jobset([replicated("a", 1, 2, job=job)]))


# --- where pods run is nothing a machine has to be told


@pytest.mark.parametrize(
    ("pod", "metadata", "note"),
    [
        pytest.param(
            {"schedulingGates": [{"name": "wait"}], "nodeSelector": {"pool": "b"}},
            {},
            ["nodeSelector", "schedulingGates"],
            id="E06",
        ),
        pytest.param(
            {},
            {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}},
            ["annotation alpha.jobset.sigs.k8s.io/exclusive-topology"],
            id="E17",
        ),
    ],
)
def test_where_pods_run_is_noted(
    pod: dict[str, Any], metadata: dict[str, Any], note: list[str]
) -> None:
    manifest = jobset([replicated("a", pod=pod)])
    manifest["metadata"] |= metadata
    notes = read(manifest).notes
    assert sorted(re.split(r" is (not used|kept)", line)[0] for line in notes) == note
