"""JobSet's integration tests of its webhook, W01 to W19: defaults, and manifests that are refused.

Muster does not store and edit manifests: it reads a manifest into a Job. Changes correspond to the
overrides of a run that is resumed. tests/spec/formats/jobset/test_rules.py tests each message.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from muster.errors import InvalidInput
from muster.spec.overrides import overrides_from_mapping
from support.jobset import jobset, read, replicated


def refused(manifest: dict[str, Any]) -> str:
    """The problems of an invalid manifest."""
    with pytest.raises(InvalidInput) as caught:
        read(manifest)
    return "\n".join(map(str, caught.value.problems))


def depends(name: str, status: str) -> dict[str, Any]:
    return {"dependsOn": [{"name": name, "status": status}]}


@pytest.mark.shows("jobset/indexed-jobs")
@pytest.mark.parametrize(
    ("job", "env"),
    [
        pytest.param({}, {"JOB_COMPLETION_INDEX": "${index}"}, id="W01 default"),
        pytest.param({"completionMode": "NonIndexed"}, {}, id="W01 NonIndexed"),
    ],
)
def test_indexed_jobs_have_a_completion_index(job: dict[str, Any], env: dict[str, str]) -> None:
    (group,) = read(jobset([replicated("a", job=job)])).spec.node_groups
    assert dict(group.node_env) == env


@pytest.mark.shows("jobset/network-defaults")
def test_W02_host_names_are_on_by_default() -> None:
    assert read(jobset()).spec.subdomain == "demo"
    assert read(jobset(network={})).spec.subdomain == "demo"
    assert read(jobset(network={"enableDNSHostnames": False})).spec.subdomain is None


@pytest.mark.parametrize("policy", [None, "", "OnFailure", "Never"])
def test_W03_a_restart_policy_is_not_needed(policy: str | None) -> None:
    """Retries and the failure policy decide about restarts, whatever the restart policy."""
    manifest = jobset([replicated("a")])
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    del pod["restartPolicy"]
    if policy:
        pod["restartPolicy"] = policy
    (group,) = read(manifest).spec.node_groups
    assert group.retries == 0


@pytest.mark.shows("jobset/success-operators")
def test_W06_success_needs_all_jobs_by_default() -> None:
    success = read(jobset()).spec.success
    assert (success.when, success.groups) == ("all", ())


def test_W07_an_unknown_success_target_is_refused() -> None:
    success = {"operator": "All", "targetReplicatedJobs": ["c"]}
    assert "replicated Job 'c' not found" in refused(jobset(successPolicy=success))


def test_W08_negative_replicas_are_refused() -> None:
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
def test_W05_a_run_cannot_change_its_job(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match="a run cannot change it"):
        overrides_from_mapping({field: value})


def test_W11_rules_without_a_name_get_one() -> None:
    rules = [{"action": "FailJobSet", "targetReplicatedJobs": [name]} for name in ("a", "b")]
    rules[1]["name"] = "mine"
    named = read(jobset(failurePolicy={"rules": rules})).spec.failure.rules
    assert [rule.name for rule in named] == ["failurePolicyRule0", "mine"]


def test_W13_an_order_conflicts_with_dependencies() -> None:
    jobs = [replicated("a"), replicated("b", **depends("a", "Ready"))]
    in_order = {"startupPolicyOrder": "InOrder"}
    any_order = {"startupPolicyOrder": "AnyOrder"}
    assert read(jobset(jobs, startupPolicy=any_order)).spec.startup == "parallel"
    assert "conflicts with startupPolicy InOrder" in refused(jobset(jobs, startupPolicy=in_order))


def test_W14_the_first_job_cannot_have_dependencies() -> None:
    jobs = [replicated("a", **depends("b", "Ready")), replicated("b")]
    assert "cannot depend on another" in refused(jobset(jobs))


def test_W15_an_unknown_status_is_refused() -> None:
    jobs = [replicated("a"), replicated("b", **depends("a", "Running"))]
    assert "cannot be 'Running'" in refused(jobset(jobs))


def test_W16_nothing_to_run_is_refused() -> None:
    """JobSet accepts it; it never finishes."""
    assert "a JobSet without replicated Jobs never finishes" in refused(jobset([]))


def test_W17_a_coordinator_s_long_address_is_refused() -> None:
    manifest = jobset({"a": 1}, name="x" * 40, coordinator={"replicatedJob": "a"})
    assert "a label can have 63" in refused(manifest)


CLAIM = {"metadata": {"name": "data"}, "spec": {}}


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        pytest.param(
            [{"templates": [{"metadata": {"name": "data", "namespace": "x"}, "spec": {}}]}],
            "namespace: cannot be given",
            id="W18 a namespace",
        ),
        pytest.param(
            [{"templates": []}] * 51, "has 51 entries (at most 50 are allowed)", id="W18 policies"
        ),
        pytest.param(
            [{"templates": [{**CLAIM, "metadata": {"name": f"d{i}"}} for i in range(51)]}],
            "has 51 entries (at most 50 are allowed)",
            id="W18 templates",
        ),
    ],
)
def test_invalid_claims_are_refused(policies: list[dict[str, Any]], message: str) -> None:
    assert message in refused(jobset(volumeClaimPolicies=policies))


@pytest.mark.parametrize(
    ("job", "message"),
    [
        pytest.param({"completions": None}, "an Indexed Job requires it", id="W19 no completions"),
        pytest.param({"parallelism": 0}, "no pod would ever start", id="W19 less than one"),
    ],
)
def test_invalid_sizes_are_refused(job: dict[str, Any], message: str) -> None:
    """JobSet refuses such a change, Muster such a manifest."""
    assert message in refused(jobset([replicated("a", 1, 2, job=job)]))


# --- placement of pods, which does not apply to one machine


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
def test_a_node_selector_is_noted(
    pod: dict[str, Any], metadata: dict[str, Any], note: list[str]
) -> None:
    manifest = jobset([replicated("a", pod=pod)])
    manifest["metadata"] |= metadata
    notes = read(manifest).notes
    assert sorted(re.split(r" is (?:not used|kept|used)", line)[0] for line in notes) == note
