"""A job that names another namespace than the one of its engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engines.conftest import PlanOf
from muster.engines.kubernetes.namespaces import namespace_notes
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.profiles import file_of, profile_text, write_profile
from muster.storage.home import Home
from support.command import output_of

CONFIG = {
    "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "namespace": "research"}}],
    "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:9"}}],
}
NOTE = (
    "namespace other is used in the names of nodes only: pods are in the engine's, {}. `muster "
    "engines add kubernetes --name NAME --namespace other` adds an engine for other"
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(json.dumps(CONFIG))
    return str(path)


@pytest.mark.parametrize(
    ("of_job", "of_engine", "notes"),
    [
        ("other", None, [NOTE.format("research")]),
        ("other", "vision", [NOTE.format("vision")]),
        ("other", "other", []),
        ("research", None, []),
        (None, None, []),
        ("default", None, []),  # that of a manifest that names none
    ],
)
def test_a_note_if_pods_are_elsewhere(
    plan_of: PlanOf, config: str, of_job: str | None, of_engine: str | None, notes: list[str]
) -> None:
    profile = KubernetesProfile(kubeconfig=config, namespace=of_engine)
    plan = plan_of(namespace=of_job)
    assert [*namespace_notes(plan, profile, {})] == notes


def test_no_note_without_a_configuration(plan_of: PlanOf, tmp_path: Path) -> None:
    profile = KubernetesProfile(kubeconfig=str(tmp_path / "nothing"))
    assert [*namespace_notes(plan_of(namespace="other"), profile, {})] == []


def test_explain_has_the_note(own_home: Path, config: str) -> None:
    text = profile_text("kubernetes", "kubernetes", {"kubeconfig": config})
    write_profile(file_of(Home(own_home), "kubernetes"), text)
    words = ("explain", "--engine", "kubernetes", "--set", "namespace=other", "--", "true")
    assert f"note: {NOTE.format('research')}\n" in output_of(*words)
