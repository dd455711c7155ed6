"""A configuration that leads to no cluster: no run is made, and the reason is the one that
`muster engines check` gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import muster as api
from muster.engines.kubernetes.access import why_no_cluster
from muster.engines.kubernetes.profile import KubernetesProfile
from muster.engines.profiles import file_of, profile_text, write_profile
from muster.storage.home import Home
from support.command import muster
from support.kube_engine import require_client

CONFIG = {
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ana"}}],
    # nobody answers there
    "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "ana", "user": {"token": "t"}}],
}


@pytest.fixture(autouse=True)
def _client() -> None:
    require_client()


def write(folder: Path, text: str) -> str:
    path = folder / "config"
    path.write_text(text)
    return str(path)


WITHOUT_CURRENT = json.dumps(CONFIG)
USABLE = json.dumps({**CONFIG, "current-context": "lab"})


@pytest.mark.parametrize(
    ("text", "context", "why"),
    [
        (USABLE, None, ""),
        (USABLE, "lab", ""),
        (USABLE, "lap", 'CONFIG has no context lap; there are: lab (did you mean "lab"?)'),
        (WITHOUT_CURRENT, None, "CONFIG has no current context; there are: lab"),
        (WITHOUT_CURRENT, "lab", ""),
        (json.dumps({}), None, "CONFIG defines no contexts"),
        (
            USABLE.replace('"cluster": "lab", "user"', '"cluster": "gone", "user"'),
            None,
            "context lab in CONFIG refers to cluster gone, which is not defined there",
        ),
        (
            USABLE.replace("http://127.0.0.1:9", "lab"),
            None,
            "server of cluster lab in CONFIG is no URL: write https://HOST:PORT",
        ),
        ("{]", None, "CONFIG is not YAML (line 1)"),
        (None, None, "there is no file CONFIG with the cluster"),
    ],
    ids=[
        "current",
        "named",
        "unknown",
        "no-current",
        "not-current",
        "no-contexts",
        "no-such-cluster",
        "no-url",
        "not-yaml",
        "no-file",
    ],
)
def test_why_there_is_no_cluster(
    tmp_path: Path, text: str | None, context: str | None, why: str
) -> None:
    path = str(tmp_path / "config") if text is None else write(tmp_path, text)
    found = why_no_cluster(KubernetesProfile(kubeconfig=path, context=context), {})
    expected = why.replace("CONFIG", path)
    assert found == expected


def test_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert why_no_cluster(KubernetesProfile(), {}).startswith("there is no cluster: ")
    # given it is named where the run is submitted
    environ = {"KUBECONFIG": write(tmp_path, USABLE)}
    assert why_no_cluster(KubernetesProfile(), environ) == ""
    # given Muster runs in a pod
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert why_no_cluster(KubernetesProfile(), {}) == ""


@pytest.mark.usefixtures("own_home")
def test_a_run_is_refused_with_what_the_check_says(own_home: Path, tmp_path: Path) -> None:
    settings = {"kubeconfig": write(tmp_path, USABLE), "context": "lap"}
    profile = profile_text("lap", "kubernetes", settings)
    write_profile(file_of(Home(own_home), "lap"), profile)
    why = f"{settings['kubeconfig']} has no context lap; there are: lab"
    assert why in muster("engines", "check", "lap", code=1).stdout
    ran = muster("run", "--engine", "lap", "--", "true", code=2)
    assert f"{why} " in ran.stderr
    where = f"settings are in {file_of(Home(own_home), 'lap')}"
    assert where in ran.stderr
    assert where in muster("engines", "check", "lap", code=1).stdout
    assert "`muster engines check lap` checks them" in ran.stderr
    assert (api.runs(), api.jobs()) == ([], [])
    # a plan can be shown all the same
    assert (
        f"cannot start: engine: {why}" in muster("explain", "--engine", "lap", "--", "true").stdout
    )


def test_an_engine_that_leads_to_no_cluster_is_not_added(own_home: Path, tmp_path: Path) -> None:
    words = ("engines", "add", "kubernetes", "--name", "lap", "--kubeconfig")
    config = write(tmp_path, USABLE)
    done = muster(*words, config, "--context", "lap", code=2)
    why = f'--context: {config} has no context lap; there are: lab (did you mean "lab"?)'
    assert f"error: {why} (nothing was written)\n" in done.stderr
    assert not file_of(Home(own_home), "lap").exists()
    # nobody answers, which may change
    muster(*words, config, code=1)
    assert file_of(Home(own_home), "lap").exists()


def test_the_list_says_that_there_is_no_cluster(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    listed = " ".join(muster("engines", "list", code=0).stdout.split())
    assert "kubernetes built in no" in listed
    assert f"kubernetes cannot be used here: there is no cluster: {tmp_path}/nothing" in listed
    monkeypatch.setenv("KUBECONFIG", write(tmp_path, USABLE))
    assert "kubernetes built in yes" in " ".join(muster("engines", "list").stdout.split())
