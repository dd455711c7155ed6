"""Keys and profiles of clients of OCI."""

from __future__ import annotations

import configparser
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.api.accounts import OciAccess
from muster.client.oci_config import ensure_key, missing_names, write_profile
from muster.errors import InvalidInput
from muster.iam.public_keys import fingerprint_of, read_public_key

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
