"""Keys and profiles of clients of OCI."""

from __future__ import annotations

import configparser
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.api.accounts import OciAccess
from muster.caller import Caller
from muster.client.oci_config import (
    NO_REGION,
    Choices,
    Profile,
    ensure_key,
    missing_names,
    set_up,
    write_profile,
)
from muster.errors import InvalidInput
from muster.iam.public_keys import fingerprint_of, read_public_key
from muster.service.accounts import EmbeddedAccounts
from muster.service.backend import Backend
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from muster.store.account_records import UserKind, UserRecord

VALUES = {"user": "u", "region": "a.b:1"}


def test_a_key_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key.pem"
    pem, fingerprint = ensure_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ensure_key(file) == (pem, fingerprint)
    assert fingerprint_of(read_public_key(pem)) == fingerprint


def test_what_is_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("no key")
    with pytest.raises(InvalidInput, match="has no private key in PEM"):
        ensure_key(file)
    assert file.read_text() == "no key"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[M]\nuser=u\nregion=a.b:1\n"),
        ("# x\n[D]\na=1", "# x\n[D]\na=1\n\n[M]\nuser=u\nregion=a.b:1\n"),
        ("[M]\nuser=u\nregion=a.b:1\n\n[D]\n", "[M]\nuser=u\nregion=a.b:1\n\n[D]\n"),
    ],
)
def test_a_profile_is_added(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "config"
    if before:
        file.write_text(before)
    write_profile(file, "M", VALUES, replace=False)
    assert file.read_text() == after


def test_a_profile_with_other_values_stays(tmp_path: Path) -> None:
    file = tmp_path / "config"
    before = "[D]\nx=1\n[M]\nuser=other\n# mine\n[E]\ny=2\n"
    file.write_text(before)
    with pytest.raises(InvalidInput, match="has a profile M with other values"):
        write_profile(file, "M", VALUES, replace=False)
    assert file.read_text() == before
    write_profile(file, "M", VALUES, replace=True)
    assert file.read_text() == "[D]\nx=1\n[M]\nuser=u\nregion=a.b:1\n[E]\ny=2\n"


NAMES = st.text("abM", min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sections=st.dictionaries(NAMES, st.dictionaries(st.text("xy", min_size=1), st.text("12"))),
    name=NAMES,
)
def test_other_profiles_stay(
    tmp_path: Path, sections: dict[str, dict[str, str]], name: str
) -> None:
    file = tmp_path / "config"
    lines = [
        f"[{one}]\n" + "".join(f"{k}={v}\n" for k, v in of.items()) for one, of in sections.items()
    ]
    file.write_text("".join(lines))
    write_profile(file, name, VALUES, replace=True)
    parser = configparser.RawConfigParser(default_section="-")
    parser.read_string(file.read_text())
    assert {one: dict(parser[one]) for one in parser.sections()} == {**sections, name: VALUES}


def test_names_that_do_not_resolve() -> None:
    access = OciAccess("u", "t", "c", "muster.invalid:8431", ("datascience", "secrets.vaults"))
    assert missing_names(access) == [
        "datascience.muster.invalid",
        "secrets.vaults.muster.invalid",
    ]
    assert missing_names(OciAccess("u", "t", "c")) == []


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[EmbeddedAccounts]:
    (tmp_path / "home").mkdir()
    with closing(Backend(Home(tmp_path / "home"))) as backend:
        made = EmbeddedAccounts(backend, Caller("root", "default"))
        made.create_user(UserRecord("root", UserKind.PERSON, 0.0, admin=True))
        yield made


def choices(folder: Path, auth: str = "api_key", key: Path | None = None) -> Choices:
    return Choices(folder / "oci" / "config", "M", key, auth, replace=False)


def profile_of(made: Profile) -> dict[str, str]:
    config = configparser.ConfigParser(interpolation=None)
    config.read(made.file)
    return {**config[made.profile]}


def test_the_server_knows_the_key_of_a_profile(tmp_path: Path, accounts: EmbeddedAccounts) -> None:
    made = set_up(accounts, choices(tmp_path), "http://server:1")
    assert set_up(accounts, choices(tmp_path), "http://server:1") == made
    assert [key.fingerprint for key in accounts.keys("root")] == [made.fingerprint]
    assert profile_of(made) == {
        "user": made.user,
        "fingerprint": made.fingerprint,
        "tenancy": TENANCY,
        "region": NO_REGION,
        "key_file": str(tmp_path / "oci" / "muster_api_key.pem"),
    }
    assert (made.endpoint, made.hosts, made.ca) == ("http://server:1", "", "")


def test_a_session_has_its_own_key_and_token(tmp_path: Path, accounts: EmbeddedAccounts) -> None:
    given, own = choices(tmp_path, "security_token"), tmp_path / "own.pem"
    for key, name in ((None, "oci/sessions/M/oci_api_key.pem"), (own, "own.pem")):
        made = set_up(accounts, replace(given, key=key, replace=True), "http://server:1")
        assert made.key_file == str(tmp_path / name)
        token = Path(profile_of(made)["security_token_file"])
        assert token == tmp_path / "oci/sessions/M/token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert accounts.keys("root") == []


def test_clients_need_a_server(tmp_path: Path, accounts: EmbeddedAccounts) -> None:
    with pytest.raises(InvalidInput, match="clients of OCI need a server"):
        set_up(accounts, choices(tmp_path), None)
    assert not (tmp_path / "oci").exists()
