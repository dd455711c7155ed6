"""Runs of code from repositories, folders and notebooks."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from muster.client.client import Client, overrides_from
from muster.client.run import JobRun
from muster.errors import InvalidInput
from support.embedded import embedded
from support.repositories import Repository, serve
from support.runs import output_of_success

PRINT_GIT_VARIABLES = (
    "import os\nprint(sorted(k + '=' + v for k, v in os.environ.items() if 'GIT' in k))\n"
)


def start(client: Client, target: str | Path, **fields: object) -> JobRun:
    job, new = client.job(target, **fields)
    return client.start(client.prepare_run(job, overrides_from({}), new_job=new))


@pytest.fixture(autouse=True)
def no_git_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own configuration of git has no effect."""
    for name in ("GIT_ASKPASS", "GIT_EDITOR", "GIT_PAGER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.shows("distributed-jobs/bring-code-and-artifacts")
def test_a_branch_is_looked_up_for_each_job_and_kept_with_it(
    client: Client, tmp_path: Path
) -> None:
    repository = Repository(tmp_path / "code")
    first = repository.commit(train__py=PRINT_GIT_VARIABLES)
    target = f"git+{repository.url}@main"
    run = start(client, target, entrypoint="train.py")
    (reported,) = output_of_success(run)
    for text in ("BRANCH=main", f"COMMIT={first}", f"URL={repository.url}"):
        assert f"'MUSTER_GIT_{text}'" in reported
    settings = {setting.path: setting.value for setting in run.settings()}
    assert settings["git.commit"] == first

    again = start(client, target, entrypoint="train.py")
    assert again.job_id == run.job_id

    second = repository.commit(train__py=PRINT_GIT_VARIABLES + "# more")
    newer = start(client, target, entrypoint="train.py")
    assert newer.job_id != run.job_id
    assert second in output_of_success(newer)[0]
    # the Job is unchanged
    assert (
        first
        in output_of_success(client.start(client.prepare_run(embedded(client).job(run.job_id))))[0]
    )


def test_a_folder_of_a_repository_and_a_command(client: Client, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "code")
    repository.commit(a___data__txt="forty-two")
    spec = tmp_path / "job.yaml"
    spec.write_text("git: {url: code, path: a}\ncommand: cat data.txt\n")
    assert output_of_success(start(client, spec)) == ["forty-two"]
    assert list((embedded(client).home.root / "checkouts").iterdir()) == []


def test_no_secret_is_stored_or_passed_on(
    client: Client, own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = Repository(tmp_path / "served" / "code")
    repository.commit(train__py="import os\nprint('MY_GIT' in os.environ)")
    secret = "hush-4711"
    monkeypatch.setenv("MY_GIT", secret)
    with serve(tmp_path / "served", "me", secret) as served:
        spec = tmp_path / "job.yaml"
        spec.write_text(
            f"git: {{url: 'http://me@{served.address}/code/.git', token_env: MY_GIT}}\n"
            "entrypoint: train.py\nfailure: {max_restarts: 1}\n"
        )
        run = start(client, spec)
        assert output_of_success(run) == ["False"]
        target = f"git+http://me:{secret}@{served.address}/code/.git"
        other = start(client, target, entrypoint="train.py")
        assert other.wait(60).state == "SUCCEEDED"
        with pytest.raises(InvalidInput) as caught:
            client.job(f"{target}@none", entrypoint="train.py")
    shown = [json.dumps(one.to_dict()) + str(one.settings()) for one in (run, other)]
    assert secret not in "".join([*shown, str(caught.value), *map(repr, run.events())])
    kept = [path for path in own_home.rglob("*") if path.is_file()]
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (
            "https://me:hush@127.0.0.1:1/a.git",
            "https://127.0.0.1:1/a.git is an address, not a file "
            "(write git+https://host/owner/repo.git@branch#folder)",
        ),
        (
            "git@example.org:owner/repo.git",
            "git@example.org:owner/repo.git is an address, not a file "
            "(write git+ssh://git@host/owner/repo)",
        ),
        (
            "git+https://me:hu/sh@127.0.0.1:1/a.git",
            "git.url: has a port that is not a number (in a user or password, write / as %2F, "
            "@ as %40 and # as %23; or use token_env)",
        ),
        (
            "git+https://127.0.0.1:1/a.git?private_token=hush",
            "git.url: has a query, which git does not use and which may contain a secret "
            "(leave out the question mark and what follows; a token goes into token_env)",
        ),
    ],
)
def test_invalid_addresses_are_refused(client: Client, target: str, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.job(target, entrypoint="a.py")
    assert str(caught.value) == text


@pytest.mark.skipif(find_spec("nbclient") is None, reason="nbclient is not installed")
def test_a_failed_notebook_is_kept_and_names_the_cell(client: Client, tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "source": text, "outputs": []}
        for i, text in enumerate(["print('one')", "raise ValueError('boom')"])
    ]
    for one in cells:
        one["execution_count"] = None
    data = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (tmp_path / "a.ipynb").write_text(json.dumps(data))

    run = start(client, tmp_path / "a.ipynb").wait(120)

    assert (run.state, run.exit_code) == ("FAILED", 1)
    assert run.cause is not None
    first, *_, last = run.cause["message"].splitlines()
    assert (first, last) == ("cell 2 of a.ipynb (In [2]) failed", "ValueError: boom")
    (output,) = run.outputs()
    assert str(output.path_in_run) == "rank-0/a.ipynb"
    assert "one" in output.read_text()


def test_an_invalid_notebook_is_refused(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("print(1)")
    with pytest.raises(InvalidInput) as caught:
        client.job(tmp_path / "a.ipynb")
    assert str(caught.value) == (
        "artifact: a.ipynb is damaged or not a notebook (save it again as a notebook of version 4)"
    )
