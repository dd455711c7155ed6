"""`muster users`, `projects`, `tokens`, `secrets` and `audit`."""

from __future__ import annotations

import importlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from muster.errors import Forbidden, InvalidInput, NotFound
from muster.iam.tokens import parse_token
from muster.identity import user_name
from muster.permissions import Right
from support.authorities import caller_with
from support.embedded import over_http

pytestmark = pytest.mark.usefixtures("own_home")


def call(line: str, value: str | None = None) -> Result:
    """Run a command. Its words are separated by spaces."""
    group, *words = line.split()
    command: click.Command = getattr(importlib.import_module(f"muster.cli.{group}"), group)
    return CliRunner().invoke(command, words, input=value, catch_exceptions=False)


def out(line: str, value: str | None = None) -> str:
    """What a command prints on standard output."""
    done = call(line, value)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_new_user_is_to_be_added_to_a_project() -> None:
    _, following = call("users add joe").stderr.splitlines()
    assert following == "next: muster projects add-member PROJECT joe --role submitter"


def test_users() -> None:
    assert call("users list").stderr.startswith("no users: `muster server` makes the first one")
    assert call("users add ana --display-name Ana --admin").stderr == "added person ana\n"
    added = call("users add ci --service --json")
    assert json.loads(added.stdout)["kind"] == "service"
    assert [line.split()[:4] for line in out("users list").splitlines()] == [
        ["USER", "KIND", "ADMIN", "STATE"],
        ["ana", "person", "yes", "active"],
        ["ci", "service", "no", "active"],
    ]
    for change, state in (("disable", "disabled"), ("enable", "active")):
        shown = call(f"users {change} ci").stderr
        assert shown == f"changed ci: {state}, does not administer the server\n"
    assert json.loads(out("users change ci --admin --json"))["admin"] is True
    linked = out("users change ana --issuer https://id --subject 7 --json")
    assert json.loads(linked)["subject"] == "7"
    assert json.loads(out("users list --json"))[0]["created_at"].endswith("Z")
    with pytest.raises(InvalidInput, match="ana is the last person who administers"):
        call("users change ana --no-admin")
    assert "Say what to change" in call("users change ana").output


def test_whoami() -> None:
    lines = out("users whoami").splitlines()
    assert lines[0] == f"{user_name()}, in project default"
    assert lines[1] == f"may: {', '.join(sorted(Right))}"
    assert json.loads(out("users whoami --json"))["token"] is None


def test_projects_and_members() -> None:
    call("users add ana")
    assert call("projects add vision --description Cameras").stderr.startswith("added project vis")
    assert [line.split()[0] for line in out("projects list").splitlines()][1:] == [
        "default",
        "vision",
    ]
    assert call("projects change vision --description Eyes").exit_code == 0
    assert json.loads(out("projects list --json"))[1]["description"] == "Eyes"
    assert call("projects members vision").stderr.startswith("no members: ")
    added = call("projects add-member vision ana --role maintainer")
    assert added.stderr == "ana is maintainer of project vision\n"
    assert out("projects members vision").splitlines()[1].split() == ["ana", "maintainer", "here"]
    assert "'owner' is not one of" in call("projects add-member vision ana --role owner").output
    assert call("projects remove-member vision ana").exit_code == 0
    with pytest.raises(NotFound, match="ana is no member of project vision"):
        call("projects remove-member vision ana")
    with pytest.raises(InvalidInput, match="no terminal to confirm on"):
        call("projects delete vision")
    assert call("projects delete vision --yes").stderr == "deleted project vision\n"


def test_tokens() -> None:
    call("users add ana")
    made = call("tokens create laptop --user ana --scope read --scope submit --expires 12h")
    token = parse_token(made.stdout.removesuffix("\n"))
    assert made.stderr.startswith(f"token {token.id} of ana, expires: ")
    (listed,) = json.loads(out("tokens list --json"))
    assert (listed["id"], listed["scopes"], listed["state"]) == (
        token.id,
        ["read", "submit"],
        "active",
    )
    assert token.secret not in str(listed)
    data = json.loads(out("tokens create ci --user ana --expires never --json"))
    assert parse_token(data["text"]).id == data["id"]
    assert data["expires_at"] is None
    assert call(f"tokens revoke {token.id}").stderr == f"revoked {token.id}\n"
    assert call(f"tokens revoke {token.id}").stderr == f"{token.id} was revoked before\n"
    assert len(json.loads(out("tokens list --json"))) == 1
    assert len(json.loads(out("tokens list --all --json"))) == 2
    with pytest.raises(InvalidInput, match="--expires"):
        call("tokens create x --user ana --expires 12")
    with pytest.raises(NotFound, match=f"has no account here .*users add {user_name()} --admin"):
        call("tokens create x")


def test_secrets(own_home: Path) -> None:
    assert call("secrets list").stderr == "no secrets: `muster secrets set NAME` stores one\n"
    stored = call("secrets set hf-token", "hush-4711\n")
    assert stored.stderr.splitlines() == [
        "stored version 1 of secret hf-token",
        "in a group of a job: node_env: {NAME: ${secret.hf-token}}",
    ]
    assert call("secrets set hf-token", "hush-4712").stderr.startswith("stored version 2")
    assert out("secrets list").splitlines()[1].split()[:3] == ["hf-token", "2", user_name()]
    assert "hush" not in out("secrets list --json") + out("audit export")
    with pytest.raises(InvalidInput, match="the value of the secret empty is empty"):
        call("secrets set empty", "\n")
    with pytest.raises(NotFound, match="no project named 'none'"):
        call("secrets set x --project none", "y")
    assert call("secrets rm hf-token").stderr == "deleted secret hf-token\n"
    with pytest.raises(NotFound, match="no secret 'hf-token' in project default"):
        call("secrets rm hf-token")


@pytest.mark.parametrize(
    ("value", "expected"), [("a\n", "a"), ("a\r\n", "a"), ("a\nb\n\n", "a\nb\n"), (" a ", " a ")]
)
def test_the_value_of_a_secret_is_kept_but_for_its_line_break(
    own_home: Path, value: str, expected: str
) -> None:
    from muster.service.backend import Backend
    from muster.storage.home import Home
    from muster.storage.sealing import unseal

    call("secrets set x", value)
    backend = Backend(Home(own_home))
    sealed = backend.store.secrets.values("default", ["x"])["x"]
    assert unseal(backend.home, sealed, "x") == expected
    backend.close()


def test_a_value_that_is_typed_in_is_not_shown() -> None:
    """In a real terminal."""
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "muster", "secrets", "set", "typed"]
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"Value of typed:" not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, b"hush-4711\n")
        while b"in a group of a job" not in shown:
            shown += os.read(ours, 1000)
        os.close(ours)
    assert process.returncode == 0
    assert b"hush" not in shown
    assert b"stored version 1 of secret typed" in shown


def test_audit() -> None:
    call("users add ana")
    call("projects add vision")
    with pytest.raises(InvalidInput):
        call("users add ana")
    header, *rows = out("audit list").splitlines()
    assert header.split()[:2] == ["SEQ", "TIME"]
    address = "127.0.0.1" if over_http() else "this machine"
    for row, text in zip(
        rows,
        ("users.create ana", "users.create ana", "projects.create vision", "users.create ana"),
        strict=True,
    ):
        assert f"{address} {text} " in " ".join(row.split())
    assert "failed: there is a user 'ana' already" in out("audit list --limit 1")
    assert len(json.loads(out("audit list --action users --since 1h --json"))) == 3
    assert len(json.loads(out("audit list --project vision --json"))) == 1
    assert json.loads(out("audit list --until 1h --json")) == []
    needed = json.loads(out("audit list --permission COMPARTMENT_CREATE --json"))
    assert [entry["object"] for entry in needed] == ["vision"]
    assert json.loads(out("audit list --permission OBJECT_READ --json")) == []
    assert call("audit list --refused").stderr == "no entries\n"
    lines = [json.loads(line) for line in out("audit export").splitlines()]
    assert [line["seq"] for line in lines] == [1, 2, 3, 4]
    assert [json.loads(line)["seq"] for line in out("audit export --after 2").splitlines()] == [
        3,
        4,
    ]
    assert call("audit prune --older-than 1d --yes").stderr == "entries deleted: 0\n"


def test_values_of_others_do_not_start_lines_in_an_export() -> None:
    hostile = "a\u2028b\x7fc\x1b[2J"
    with pytest.raises(InvalidInput):
        CliRunner().invoke(
            importlib.import_module("muster.cli.users").users,
            ["add", f"{hostile}\n{{}}"],
            catch_exceptions=False,
        )
    exported = out("audit export")
    assert exported.isascii()
    objects = [json.loads(line)["object"] for line in exported.splitlines()]
    assert objects == [f"{hostile}\n{{}}"] * 2


def test_a_long_export_has_every_entry_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.cli.audit._PAGE", 2)
    for number in range(5):
        call(f"projects add p{number}")
    lines = [json.loads(line)["object"] for line in out("audit export").splitlines()]
    assert lines == [f"p{number}" for number in range(5)]


def test_errors_are_those_of_the_use_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller with few rights."""
    from muster.service import accounts
    from muster.service.accounts import EmbeddedAccounts

    init = EmbeddedAccounts.__init__

    def as_viewer(self: EmbeddedAccounts, backend: object, *_: object) -> None:
        init(self, backend, caller_with("eve", "default", {Right.READ}))  # type: ignore

    monkeypatch.setattr(accounts.EmbeddedAccounts, "__init__", as_viewer)
    with pytest.raises(Forbidden, match="eve may not list users: this takes USER_INSPECT"):
        call("users list")
    with pytest.raises(Forbidden, match="eve may not change secrets in project default"):
        call("secrets set x", "y")
