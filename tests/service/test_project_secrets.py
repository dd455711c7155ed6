"""The secrets of a project reach the programs of its runs, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from muster.client.client import Client
from muster.errors import InvalidInput
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.storage.home import Home
from support.runs import output_of_success

SECRET = "hunter2-4711"
COMMAND = ["sh", "-c", 'test "$KEY" = "hunter2-"4711 && echo right; echo "$OTHER"']
SPEC: dict[str, Any] = {
    "name": "keyed",
    "command": COMMAND,
    "secrets": {"own": "of the job"},
    "node_groups": [
        {
            "name": "all",
            "node_env": {"KEY": "${secret.api-key}", "OTHER": "${secret.own}"},
        }
    ],
}


@pytest.fixture
def accounts(own_home: Path) -> Iterator[EmbeddedAccounts]:
    backend = Backend(Home(own_home))
    yield EmbeddedAccounts(backend)
    backend.close()


@pytest.fixture
def client(own_home: Path, accounts: EmbeddedAccounts, tmp_path: Path) -> Client:
    return Client(own_home)


def prepared(client: Client, tmp_path: Path, spec: dict[str, Any], **overrides: Any) -> Any:
    from muster.spec.formats.yaml_write import dump
    from muster.spec.overrides import changes_from_mapping

    (tmp_path / "job.yaml").write_text(dump(spec))
    return client.prepare(tmp_path / "job.yaml", changes_from_mapping(overrides))


def on_disk(home: Path) -> bytes:
    return b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_run_gets_the_secret_and_what_is_prepared_does_not(
    client: Client, accounts: EmbeddedAccounts, own_home: Path, tmp_path: Path
) -> None:
    accounts.set_secret("api-key", SECRET)
    accounts.set_secret("own", "of the project")
    made = prepared(client, tmp_path, SPEC)
    assert SECRET not in str(to_builtins(made))
    run = client.start(made)
    assert output_of_success(run) == ["right", "***"]
    assert SECRET not in str(to_builtins(client.api.run(run.id)))
    assert SECRET.encode() not in on_disk(own_home)


def test_a_run_has_the_value_of_its_start(
    client: Client, accounts: EmbeddedAccounts, tmp_path: Path
) -> None:
    accounts.set_secret("api-key", "former")
    made = prepared(client, tmp_path, SPEC)
    accounts.set_secret("api-key", SECRET)
    run = client.start(made)
    accounts.delete_secret("api-key")
    assert output_of_success(run)[0] == "right"


def test_a_suspended_run_keeps_it_and_gets_a_new_one_when_it_is_changed(
    client: Client, accounts: EmbeddedAccounts, tmp_path: Path
) -> None:
    accounts.set_secret("api-key", SECRET)
    run = client.start(prepared(client, tmp_path, SPEC, suspend=True))
    accounts.set_secret("api-key", "changed")
    run.resume()
    assert output_of_success(run)[0] == "right"
    accounts.set_secret("api-key", "former")
    run = client.start(prepared(client, tmp_path, SPEC, suspend=True))
    accounts.set_secret("api-key", SECRET)
    run.resume(env={"MORE": "x"})
    assert output_of_success(run)[0] == "right"


def test_a_secret_that_nobody_has_is_found_before_the_start(
    client: Client, accounts: EmbeddedAccounts, tmp_path: Path
) -> None:
    accounts.set_secret("api_key", SECRET)
    with pytest.raises(InvalidInput) as caught:
        prepared(client, tmp_path, SPEC)
    assert str(caught.value).endswith(
        "job.yaml:11: node_groups[0].node_env.KEY: no secret api-key in the job, nor in project "
        "default (did you mean api_key? `muster secrets set api-key` stores it)"
    )
    accounts.set_secret("api-key", SECRET)
    made = prepared(client, tmp_path, SPEC)
    accounts.delete_secret("api-key")
    with pytest.raises(InvalidInput, match="no secret api-key in the job"):
        client.start(made)


def test_a_plan_is_shown_without_the_value(
    client: Client, accounts: EmbeddedAccounts, tmp_path: Path
) -> None:
    from muster.describe.node_commands import TemplateText

    accounts.set_secret("api-key", SECRET)
    plan = prepared(client, tmp_path, SPEC).plan
    shown = TemplateText(plan, plan.nodes[0], 0, {})
    assert shown.text("${rank} ${secret.api-key} ${secret.own}") == "0 *** ***"
    assert shown.command(["x", "--key=${secret.api-key}"]) == "x '--key=***'"


def test_programs_that_print_secrets_do_not_show_them(
    client: Client, accounts: EmbeddedAccounts, tmp_path: Path
) -> None:
    accounts.set_secret("api-key", f"{SECRET}\nsecond line\nx")
    program = 'printf "%s" "key=$KEY"; echo " $OTHER" >&2; echo "cannot use $KEY" >&2; exit 3'
    spec = {**SPEC, "command": ["sh", "-c", program]}
    run = client.start(prepared(client, tmp_path, spec))
    run.wait(60)
    shown = [record.message for record in run.logs(groups=["all"])]
    assert sorted(shown) == sorted([" ***", "cannot use ***", "***", "x", "key=***", "***", "x"])
    assert [*run.logs(groups=["all"], grep="hunter")] == []
    assert run.state == "FAILED"
    assert "cannot use ***" in run.details
    assert SECRET not in str(to_builtins(client.api.run(run.id))) + str([*run.events()])
