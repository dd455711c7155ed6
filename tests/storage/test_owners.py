"""The accounts of owners: each is given once, and for ever."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from muster.errors import InvalidInput
from muster.storage.home import Home
from muster.storage.owners import (
    FIRST,
    account_of,
    account_of_run,
    closed_python,
    owner_home,
    prepare_run_folder,
)
from muster.unix_account import acting_as
from support.owners import needs_root, open_home

pytestmark = needs_root


@pytest.fixture
def home() -> Iterator[Home]:
    with open_home() as made:
        yield made


def test_each_owner_has_an_account_of_its_own(home: Home) -> None:
    ana, ben = account_of(home, "ana"), account_of(home, "ben")
    assert (ana.uid, ana.gid, ana.groups) == (FIRST, FIRST, (FIRST,))
    assert (ben.uid, ben.gid, ben.groups) == (FIRST + 1, FIRST + 1, (FIRST + 1,))
    assert account_of(Home(home.root), "ana") == ana
    with acting_as(ana):
        assert os.listdir(ana.home) == []
        for folder in (ben.home, home.owners, home.root, home.runs, home.artifacts):
            with pytest.raises(PermissionError):
                os.listdir(folder)


def test_accounts_that_are_given_at_once_differ(home: Home) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda n: account_of(home, f"owner-{n % 20}").uid, range(60))]
    assert sorted(set(found)) == [*range(FIRST, FIRST + 20)]
    assert found[:20] == found[20:40] == found[40:]


def test_the_administrator_names_a_unix_user(home: Home) -> None:
    nobody = pwd.getpwnam("nobody")
    account = account_of(home, "ana", "nobody")
    assert (account.uid, account.gid, account.name) == (nobody.pw_uid, nobody.pw_gid, "nobody")
    assert account.groups == (nobody.pw_gid, FIRST)
    assert account_of(home, "ana", "nobody") == account


@pytest.mark.parametrize(
    ("name", "login", "words"),
    [
        ("ben", "nobody", "is the Unix user of ana already"),
        ("ben", "root", "root is root"),
        ("ben", "no-such-user", "this machine has no Unix user no-such-user"),
        ("ana", None, "ana has run as the Unix user nobody before"),
        ("ana", "daemon", "cannot run as the Unix user daemon"),
    ],
)
def test_what_the_administrator_cannot_name(
    home: Home, name: str, login: str | None, words: str
) -> None:
    account_of(home, "ana", "nobody")
    with pytest.raises(InvalidInput, match=words) as caught:
        account_of(home, name, login)
    (problem,) = caught.value.problems
    assert problem.path == f"accounts.{name}"
    assert problem.hint
    assert account_of(home, "carl").uid == FIRST + 1  # a refused one gets no number


def test_a_closed_folder_above_muster_home_is_refused(home: Home) -> None:
    home.root.parent.chmod(0o700)
    with pytest.raises(InvalidInput, match="a folder above is closed"):
        account_of(home, "ana")
    home.root.parent.chmod(0o711)
    assert account_of(home, "ben").uid == FIRST  # the refused one got no number


def test_a_closed_python_is_refused(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = home.root.parent / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(sys, "prefix", str(closed))
    with pytest.raises(InvalidInput, match=f"could not read {closed}, which nodes need") as caught:
        account_of(home, "ana")
    (problem,) = caught.value.problems
    assert "set separate_owners = false in server.toml" in problem.hint


def test_what_accounts_could_not_read_is_known_before_runs_start(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.storage.owners._needed", lambda: iter((str(home.root),)))
    home.root.chmod(0o755)
    assert closed_python() is None
    home.root.chmod(0o700)
    problem = closed_python()
    assert problem is not None
    assert str(problem) == (
        f"programs of owners could not read {home.root}, which nodes need (install Python and "
        "Muster where every user can read them, as in /opt, or, on a server for one user, set "
        "separate_owners = false in server.toml)"
    )


def test_a_run_belongs_to_the_owner_of_its_folder(home: Home) -> None:
    ana = account_of(home, "ana")
    folder, plain = home.run_dir("a" * 10), home.run_dir("b" * 10)
    prepare_run_folder(folder, ana)
    prepare_run_folder(plain, None)
    assert account_of_run(folder) == ana
    assert account_of_run(plain) is None
    assert account_of_run(home.run_dir("c" * 10)) is None
    with acting_as(ana):
        assert account_of_run(folder) == ana
        (folder.path / "mine").touch()
        for own in (folder.lock, folder.environ, folder.wakeup, folder.liveness_pipe):
            with pytest.raises(PermissionError):
                own.rename(own.with_name("other"))
            with pytest.raises(PermissionError):
                own.read_bytes()
        with pytest.raises(PermissionError):
            folder.path.chmod(0o777)


def test_a_table_that_was_lost_is_reported(home: Home) -> None:
    folder = home.run_dir("a" * 10)
    prepare_run_folder(folder, account_of(home, "ana"))
    (home.owners / "accounts.json").unlink()
    with pytest.raises(InvalidInput, match="is no owner's"):
        account_of_run(folder)
    (home.owners / "accounts.json").write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        account_of_run(folder)


def test_what_an_owners_runs_share(home: Home) -> None:
    ana = account_of(home, "ana")
    assert owner_home(home, None) == home
    assert owner_home(home, ana).volume("v") == home.owners / str(FIRST) / "volumes" / "v"
    assert owner_home(home, ana).environments == home.owners / str(FIRST) / "environments"
