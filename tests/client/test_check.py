"""Whether nodes can work together, asked of real ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import muster
from muster.client.check import check
from muster.client.client import Client
from muster.node.needs import NEEDS

NOISE = """
print("hello from the site")
print('{"rank": 0}')
print("[1, 2]", 3)
"""


def test_what_others_print_is_no_answer(
    client: muster.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    job, new = client.job(command="true", nodes=2)
    report = check(client, client.draft(job, new_job=new))
    assert (report.ok, report.nodes) == (True, 2), report
    assert "clocks" in {line.what for line in report.lines}


def test_a_job_called_check_is_left_alone(client: muster.Client) -> None:
    run = client.start(client.draft(client.job(command="true", name="check")[0], new_job=True))
    run.wait(60)
    job, new = client.job(command="true")
    check(client, client.draft(job, new_job=new))
    assert [job.version for job in client.service.jobs() if job.name == "check"] == [1]
    assert client.runs()[0].id == run.id, "nothing is left of the check"


def test_a_check_leaves_no_job_behind(client: Client) -> None:
    job, _ = client.job(command=["true"])
    before = client.service.jobs()
    report = check(client, client.draft(job, new_job=True))
    left = [found for found in client.service.jobs() if found not in before]
    assert bool(left) is not report.ok, "a failed one stays with its run"


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes whose Python has none of the frameworks."""
    gone = [module for need in NEEDS.values() for module in need.modules]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nfor name in {gone}: sys.modules[name] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)


@pytest.mark.parametrize("framework", ["dask", "horovod", "ray"])
@pytest.mark.usefixtures("without")
def test_a_framework_that_is_not_installed_is_said_before_and_after(
    client: Client, framework: str
) -> None:
    said = f": {NEEDS[framework].install}"
    job, new = client.job(command="true", framework=framework, nodes=2)
    report = check(client, client.draft(job, new_job=new))
    (line,) = (line for line in report.lines if line.what == "framework")
    assert not line.ok
    assert all(text.endswith(said) for text in line.texts)
    run = client.start(client.draft(job)).wait(120)
    assert run.state == "FAILED"
    assert "failed with exit code 127" in run.details
    assert f"muster: no {NEEDS[framework].name} for /" in run.details
    assert run.details.endswith(said)


@pytest.mark.usefixtures("without")
def test_what_the_job_brings_along_need_not_be_there(client: Client) -> None:
    job, new = client.job(command="true", framework="dask", requirements=["dask"])
    report = check(client, client.draft(job, new_job=new))
    assert report.ok, report
