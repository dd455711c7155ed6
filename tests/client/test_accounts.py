"""Users, projects, tokens, secrets and the audit log in Python, here and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

import muster
from muster.errors import Forbidden, InvalidInput, NotFound
from muster.store.account_records import AuditFilter
from support.teams import Teams, serving_teams


@pytest.fixture(params=["embedded", "http"])
def teams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Teams]:
    with serving_teams() as made:
        monkeypatch.delenv("MUSTER_URL", raising=False)
        if request.param == "http":
            monkeypatch.setenv("MUSTER_URL", f"http://127.0.0.1:{made.port}")
            monkeypatch.setenv("MUSTER_TOKEN", made.token("root"))
        yield made


@pytest.fixture
def accounts(teams: Teams) -> Iterator[muster.Accounts]:
    with muster.Accounts("vision") as made:
        yield made


def test_users_and_projects(accounts: muster.Accounts) -> None:
    added = accounts.add_user("ana", display_name="Ana")
    assert (added.name, added.kind, added.admin, added.display_name) == (
        *("ana", "person", False),
        "Ana",
    )
    assert datetime.now(UTC) - added.created_at < timedelta(minutes=1)
    assert accounts.add_user("ci", service=True).kind == "service"
    assert accounts.change_user("ana", disabled=True).disabled
    assert accounts.user("ANA").display_name == "Ana"
    assert {"ana", "ci", "root"} <= {user.name for user in accounts.users()}

    accounts.add_project("kites", "of paper")
    assert accounts.change_project("kites", "of silk").description == "of silk"
    accounts.set_member("kites", "ci", "viewer")
    assert accounts.set_member("kites", "ci", "submitter").role == "submitter"
    assert [(one.user, one.role) for one in accounts.members("kites")] == [("ci", "submitter")]
    assert accounts.remove_member("kites", "ci")
    assert not accounts.remove_member("kites", "ci")
    accounts.delete_project("kites")
    assert "kites" not in {project.name for project in accounts.projects()}


def test_tokens(accounts: muster.Accounts, teams: Teams) -> None:
    made = accounts.create_token("a", user="sam", project="vision", scopes=["submit", "read"])
    assert teams.caller(made.text).user == "sam"
    assert made.scopes == ("read", "submit")
    assert made.expires_at is not None
    assert timedelta(days=89) < made.expires_at - made.created_at <= timedelta(days=91)
    for shown in (repr(made), str(made), str(made.to_dict()), str(muster.Table([made]))):
        assert made.text not in shown
    assert accounts.create_token("b", user="sam", expires_after=None).expires_at is None
    soon = accounts.create_token("c", user="sam", expires_after="1h")
    assert soon.expires_at is not None
    assert soon.expires_at - soon.created_at < timedelta(hours=1.1)
    assert [token.name for token in accounts.tokens(user="sam")] == ["c", "b", "a"]
    assert accounts.revoke_token(made.id)
    assert not accounts.revoke_token(made.id)
    assert accounts.tokens(user="sam")[2].revoked_at is not None


def test_secrets_are_of_a_project(accounts: muster.Accounts) -> None:
    assert accounts.set_secret("key", "one").version == 1
    assert accounts.set_secret("key", "two").version == 2
    assert [secret.name for secret in accounts.secrets()] == ["key"]
    with muster.Accounts("sound") as others:
        assert others.secrets() == []
    accounts.delete_secret("key")
    with pytest.raises(NotFound):
        accounts.delete_secret("key")


def test_the_audit_log(accounts: muster.Accounts, teams: Teams) -> None:
    me = accounts.whoami()
    assert (me.project, "submit" in me.rights) == ("vision", True)
    accounts.add_user("ana")
    (entry,) = accounts.audit(action="users.create", object="ana")
    assert (entry.user, entry.allowed, entry.why) == (me.user, True, "")
    assert (entry.permission, entry.run) == ("USER_CREATE", "")
    assert entry.statement in ("", "Administrators#1")  # no policy decides for the machine's user
    assert entry in accounts.audit(since=timedelta(minutes=1), limit=10_000)
    assert entry in accounts.audit(permission="USER_CREATE")
    assert entry not in accounts.audit(permission="USER_UPDATE")
    assert entry not in accounts.audit(until=timedelta(minutes=1), limit=10_000)
    assert accounts.audit(before=entry.seq, limit=1)[0].seq < entry.seq
    assert accounts.prune_audit("1d") == 0
    assert "users.create" in str(accounts.audit(user=me.user))
    assert accounts.audit().to_dict()["time"][0].tzinfo is UTC
    assert teams.accounts.audit(AuditFilter(action="audit.prune"))


def test_what_is_refused(
    accounts: muster.Accounts, teams: Teams, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="role: there is no 'boss'"):
        accounts.set_member("vision", "sam", "boss")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="scopes: there is no 'all'"):
        accounts.create_token("x", scopes=["all"])
    with pytest.raises(InvalidInput, match="expires_after: "):
        accounts.create_token("x", expires_after="soon")
    monkeypatch.setenv("MUSTER_URL", f"http://127.0.0.1:{teams.port}")
    monkeypatch.setenv("MUSTER_TOKEN", teams.token("sam"))
    with muster.Accounts() as sams, pytest.raises(Forbidden):
        sams.users()
