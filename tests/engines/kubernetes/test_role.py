"""The Role: what it has, and how it is printed for an administrator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from engines.kubernetes.api_stub import Answer, ApiStub, Request, write_config
from muster.engines.grantees import Grantees
from muster.engines.kubernetes.examine import examine
from muster.engines.kubernetes.profile import KubernetesProfile, read_settings
from muster.engines.kubernetes.rights import rights
from muster.engines.kubernetes.role import needed_rights, rights_to_follow, role, role_binding
from muster.engines.kubernetes.versions import Versions
from muster.storage.home import Home

DIAL = {"contact": "dial", "address": "10.0.0.1"}
Serve = Callable[[Callable[[Request], Answer]], KubernetesProfile]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    pytest.importorskip("kubernetes")
    stubs: list[ApiStub] = []

    def made(answer: Callable[[Request], Answer]) -> KubernetesProfile:
        stubs.append(ApiStub(answer))
        return write_config(tmp_path / "config", stubs[-1].url)

    yield made
    for one in stubs:
        one.close()


@pytest.mark.parametrize(
    ("settings", "versions", "has", "lacks"),
    [
        ({}, Versions(), {"jobsets", "pods/exec", "workloads"}, {"jobs", "services"}),
        (DIAL, Versions(), {"jobsets"}, {"pods/exec"}),
        ({}, Versions(kueue=None), {"jobsets"}, {"workloads"}),
        ({}, Versions(jobset=None), {"jobs", "services"}, {"jobsets"}),
        ({"claim": "shared"}, Versions(), {"persistentvolumeclaims"}, set()),
        ({}, Versions(), {"pods/log"}, {"persistentvolumeclaims"}),
    ],
)
def test_a_role_has_what_the_settings_and_the_cluster_need(
    settings: dict[str, str], versions: Versions, has: set[str], lacks: set[str]
) -> None:
    found = needed_rights(read_settings(settings), versions)
    resources = {resource for _, _, resource in found}
    assert has <= resources
    assert not lacks & resources
    assert len(found) == len(set(found))


def test_a_right_that_runs_can_do_without_is_in_the_role() -> None:
    profile, one = read_settings({}), ("list", "metrics.k8s.io", "pods")
    assert needed_rights(profile, Versions(), optional=True) == [one]
    assert one not in needed_rights(profile, Versions())
    granted = role(profile, Versions())["rules"]
    assert {"apiGroups": [one[1]], "resources": [one[2]], "verbs": [one[0]]} in granted
    without_jobset = Versions(jobset=None)
    assert needed_rights(profile, without_jobset, optional=True) == []


def test_secrets_are_neither_read_nor_listed_nor_deleted() -> None:
    def verbs(settings: dict[str, str]) -> set[str]:
        found = needed_rights(read_settings(settings), Versions())
        return {verb for verb, _, resource in found if resource == "secrets"}

    assert verbs({}) == set(), "there are none"
    assert verbs(DIAL) == {"create", "patch"}


def test_nothing_in_it_is_a_wildcard() -> None:
    for rule in role(read_settings({}), Versions())["rules"]:
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])


def test_a_binding_names_those_who_get_it() -> None:
    grantees = Grantees(("ana",), ("researchers",), ("ci", "tools:runner"))
    made = role_binding(grantees, "research")
    assert made["metadata"] == {"name": "muster", "namespace": "research"}
    assert [(one["kind"], one.get("namespace"), one["name"]) for one in made["subjects"]] == [
        ("User", None, "ana"),
        ("Group", None, "researchers"),
        ("ServiceAccount", "research", "ci"),
        ("ServiceAccount", "tools", "runner"),
    ]
    assert made["roleRef"]["name"] == role(read_settings({}), Versions())["metadata"]["name"]


def test_it_is_printed_for_what_the_cluster_has(serve: Serve) -> None:
    answers = {"/version": {"major": "1", "minor": "36"}, "/apis": {"groups": []}}
    profile = serve(lambda request: Answer(answers[request.path]))
    granted, binding = yaml.safe_load_all(rights(profile, Grantees(groups=("researchers",))))
    assert granted == role(profile, Versions(jobset=None, kueue=None), "team")
    assert binding == role_binding(Grantees(groups=("researchers",)), "team")


def test_it_is_printed_without_the_cluster(tmp_path: Path) -> None:
    pytest.importorskip("kubernetes")
    profile = write_config(tmp_path / "config", "https://127.0.0.1:1")
    profile = KubernetesProfile(kubeconfig=profile.kubeconfig, context="nowhere", namespace="r")
    text = rights(profile, Grantees())
    first, _, rest = text.partition("\n")
    assert first.startswith("# For a cluster with JobSet and Kueue, as this one did not answer")
    assert "there are: here, there" in first
    assert yaml.safe_load(rest) == role(profile, Versions(), "r")


def test_missing_verbs_are_named_with_what_they_are_for(serve: Serve, tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.path == "/version":
            return Answer({"major": "1", "minor": "36"})
        if request.path == "/apis":
            return Answer({"groups": []})
        wanted = request.body["spec"]["resourceAttributes"]
        missing = wanted.get("subresource") == "log" or wanted["verb"] == "watch"
        return Answer({"status": {"allowed": not missing}})

    (finding,) = (
        one for one in examine(serve(answer), "lab", Home(tmp_path)) if one.name == "rights"
    )
    assert not finding.works
    assert finding.says == (
        "missing in namespace team: watch jobs (to run jobs); watch pods (to see what becomes of "
        "nodes, and replace pods); get pods/log (to say why a pod has failed)"
    )
    assert "`muster engines role lab --user NAME`" in finding.advice


def test_a_cluster_works_without_an_optional_right(serve: Serve, tmp_path: Path) -> None:
    def answer(asked: Request) -> Answer:
        jobset = {"name": "jobset.x-k8s.io", "versions": [{"version": "v1alpha2"}]}
        known = {"/version": {"major": "1", "minor": "36"}, "/apis": {"groups": [jobset]}}
        if asked.path.endswith("/selfsubjectaccessreviews"):
            group = asked.body["spec"]["resourceAttributes"]["group"]
            return Answer({"status": {"allowed": group != "metrics.k8s.io"}})
        return Answer(known.get(asked.path, {"metadata": {"name": "muster-check", "uid": "u"}}))

    (finding,) = (
        one for one in examine(serve(answer), "lab", Home(tmp_path)) if one.name == "rights"
    )
    assert finding.works
    assert finding.says == (
        "all that runs need in namespace team; missing, but optional: list "
        "pods.metrics.k8s.io (to show what pods of JobSets use that run as they are)"
    )


@pytest.mark.parametrize(
    ("modes", "phase", "works", "text"),
    [
        (["ReadWriteMany"], "Bound", True, "shared is Bound, ReadWriteMany; pods share it at"),
        (["ReadWriteMany"], "Lost", False, "shared is Lost, ReadWriteMany"),
        (["ReadWriteOnce"], "Bound", False, "shared is Bound, ReadWriteOnce"),
    ],
)
def test_a_claim_is_looked_at(
    serve: Serve, tmp_path: Path, modes: list[str], phase: str, works: bool, text: str
) -> None:
    about = {"name": "shared", "uid": "u"}
    claim = {"metadata": about, "spec": {"accessModes": modes}, "status": {"phase": phase}}

    def answer(request: Request) -> Answer:
        if request.path.endswith("/persistentvolumeclaims/shared"):
            return Answer(claim)
        known = {"/version": {"major": "1", "minor": "36"}, "/apis": {"groups": []}}
        return Answer(known.get(request.path, {"status": {"allowed": True}}))

    found = serve(answer)
    profile = KubernetesProfile(kubeconfig=found.kubeconfig, claim="shared")
    (finding,) = (one for one in examine(profile, "lab", Home(tmp_path)) if one.name == "claim")
    assert (finding.works, text in finding.says) == (works, True)


def test_older_clusters_let_pods_be_entered_without_the_right_to_create() -> None:
    see = [("list", "", "pods"), ("watch", "", "pods")]
    get, create = (("get", "", "pods/exec"), ("create", "", "pods/exec"))
    for version, found in (
        ((1, 34), ([*see, get], [create])),
        ((1, 35), ([*see, get, create], [])),
    ):
        assert rights_to_follow(read_settings({}), Versions(version)) == found
    dial = read_settings(DIAL)
    assert rights_to_follow(dial, Versions()) == (see, [])
