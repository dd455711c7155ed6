"""Manifests that are kept as files (`golden`), and are accepted by clusters of all versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from engines.kubernetes import golden
from engines.kubernetes.accepted import refusals
from engines.kubernetes.golden import JOBSETS, KUBERNETES
from muster.engines.kubernetes.versions import Versions

CASES = {name: (plan, profile) for name, plan, profile in golden.cases()}


def documents(text: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(text)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("variant", JOBSETS)
def test_a_job_becomes_what_is_in_its_file(name: str, variant: str) -> None:
    plan, profile = CASES[name]
    text = golden.text_of(plan, profile, Versions(jobset=JOBSETS[variant]))
    kept = golden.FOLDER / f"{name}.{variant}.yaml"
    assert text == kept.read_text(), "PYTHONPATH=tests python -m engines.kubernetes.golden"


def test_there_are_no_other_files() -> None:
    expected = {f"{name}.{variant}.yaml" for name in CASES for variant in JOBSETS}
    assert {path.name for path in golden.FOLDER.glob("*.yaml")} == expected


@pytest.mark.parametrize("path", sorted(golden.FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_cluster_accepts_it(path: Path) -> None:
    variant = path.stem.partition(".")[2]
    assert refusals(documents(path.read_text()), JOBSETS[variant]) == []


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_for_all_versions_of_kubernetes(name: str) -> None:
    plan, profile = CASES[name]
    texts = {golden.text_of(plan, profile, Versions(kubernetes=one)) for one in KUBERNETES}
    assert len(texts) == 1


# --- what the checks above find


def broken(change: Any, variant: str = "jobset-0.6") -> list[str]:
    """What is refused of a manifest after a change of its first object."""
    first, *others = documents((golden.FOLDER / f"resources.{variant}.yaml").read_text())
    change(first["spec"]["replicatedJobs"][0]["template"]["spec"], first)
    return refusals([first, *others], JOBSETS[variant])


def test_a_field_that_a_release_does_not_have_is_refused() -> None:
    def change(_: Any, jobset: Any) -> None:
        policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
        jobset["spec"]["failurePolicy"] = policy

    assert any("restartStrategy" in one for one in broken(change))
    assert broken(change, "jobset-0.12") == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda job, _: job.update(paralelism=1), "paralelism"),
        (lambda job, _: job.update(parallelism="2"), "parallelism"),
        (lambda _, jobset: jobset["metadata"].update(name="x" * 60), "63"),
        (lambda job, _: job["template"]["spec"]["volumes"].pop(), "there is no volume"),
        (
            lambda job, _: job["template"]["spec"]["containers"][0]["resources"]["requests"].update(
                cpu="2"
            ),
            "requests more cpu",
        ),
        (
            lambda job, _: job["podFailurePolicy"]["rules"].append(
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137, 79]}}
            ),
            "in order",
        ),
    ],
)
def test_what_a_cluster_refuses(change: Any, text: str) -> None:
    assert any(text in one for one in broken(change))


def test_secrets_and_the_node_program_are_hidden() -> None:
    for path in golden.FOLDER.glob("*.yaml"):
        for one in documents(path.read_text()):
            if one["kind"] == "Secret":
                assert set(one["data"].values()) == {"***"}
            if one["kind"] == "ConfigMap":
                assert set(one["binaryData"].values()) == {"***"}
