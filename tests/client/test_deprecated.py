"""Old names of the Python API keep working, with a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.client.client import Client
from muster.spec.overrides import Changes


def test_old_names_of_the_client(client: Client, tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text("print(1)\n")
    with pytest.warns(DeprecationWarning, match=r"Client\.draft_for is now called Client\.prepare"):
        prepared = client.draft_for(script, Changes())
    assert (prepared.job.name, prepared.new_job) == ("a", True)
    with pytest.warns(DeprecationWarning, match=r"Client\.draft_job_for is now called"):
        job = client.create(client.draft_job_for(script))
    with pytest.warns(DeprecationWarning, match=r"Client\.draft is now called Client\.prepare_run"):
        assert client.draft(job).job == job


def test_the_old_name_of_a_prepared_run(client: Client) -> None:
    prepared = client.prepare(None, Changes(), command=["true"])
    with pytest.warns(
        DeprecationWarning, match=r"^draft of Client\.create is now called prepared$"
    ):
        job = client.create(draft=prepared)  # type: ignore[call-arg]
    prepared = client.prepare_run(job)
    with pytest.warns(DeprecationWarning, match=r"^draft of Client\.start is now") as warned:
        run = client.start(draft=prepared)  # type: ignore[call-arg]
    assert warned[0].filename == __file__
    assert run.wait(60).state == "SUCCEEDED"
    with pytest.raises(TypeError, match="draft"):
        client.create(prepared=prepared, draft=prepared)  # type: ignore[call-arg]


def test_old_names_of_a_run(client: Client) -> None:
    job, new = client.job(command=["true"])
    run = client.start(client.prepare_run(job, new_job=new)).wait(60)
    with pytest.warns(DeprecationWarning, match=r"is now called JobRun\.suspend_problem"):
        problem = run.not_to_suspend()
    assert problem is not None and problem == run.suspend_problem()
