"""The file of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.caller import Role
from muster.errors import InvalidInput
from muster.iam.oidc.settings import GroupRole, OidcSettings, is_safe, read_settings

LEAST = 'issuer = "https://id.example.org"\nclient_id = "muster"\n'


def test_without_a_file_nobody_logs_in(tmp_path: Path) -> None:
    assert read_settings(tmp_path / "oidc.toml") is None


def test_the_least(tmp_path: Path) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(LEAST)
    assert read_settings(file) == OidcSettings("https://id.example.org", "muster")


def test_every_setting(tmp_path: Path) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(
        LEAST
        + """
        client_secret = "hush"
        audience = "api"
        scopes = ["openid", "groups"]
        name_claim = "email"
        groups_claim = "teams"
        create_users = true
        lasts = "12h"
        [[roles]]
        group = "a"
        project = "vision"
        role = "admin"
        """
    )
    file.chmod(0o644)
    with pytest.raises(InvalidInput, match="client_secret: other users can read it"):
        read_settings(file)
    file.chmod(0o600)
    assert read_settings(file) == OidcSettings(
        issuer="https://id.example.org",
        client_id="muster",
        client_secret="hush",
        audience="api",
        scopes=("openid", "groups"),
        name_claim="email",
        groups_claim="teams",
        create_users=True,
        lasts=43200.0,
        roles=(GroupRole("a", "vision", Role.ADMIN),),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", r"issuer: is missing .*\n.*client_id: is missing"),
        ('issuer = "http://id.example.org"', "issuer: is not the address of an issuer"),
        ('issuer = "ftp://x"', "issuer: is not the address of an issuer"),
        ("issuer = 5", "issuer: must be a text"),
        ('client_id = ""', "client_id: must be a text"),
        ('client_idd = "x"', "client_idd"),
        ("create_users = 1", "create_users: must be true or false"),
        ('scopes = "openid"', "scopes: must be a list of texts"),
        ('scopes = ["email"]', "scopes: lacks openid"),
        ("lasts = 5", "lasts: "),
        ('lasts = "5s"', "lasts: is too short: 5s"),
        ('lasts = "x"', "lasts: "),
        ("roles = 5", "roles: must be tables"),
        ("[[roles]]", r"roles\[0\].group: is missing"),
        ('[[roles]]\nrole = "owner"', r"roles\[0\].role: no role 'owner'"),
        ('[[roles]]\nteam = "x"', r"roles\[0\].team"),
    ],
)
def test_each_problem_has_its_line(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(text)
    with pytest.raises(InvalidInput, match=error) as caught:
        read_settings(file)
    assert all(problem.source.startswith(str(file)) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://id.example.org", True),
        ("https://id.example.org:8443/realms/x", True),
        ("http://127.0.0.1:5000", True),
        ("http://localhost:5000", True),
        ("http://[::1]:5000", True),
        ("http://id.example.org", False),
        ("http://127.0.0.1.example.org", False),
        ("https://user:pw@id.example.org", False),
        ("https://id.example.org/#x", False),
        ("https://", False),
        ("https://id.example.org:x", False),
        ("https://[", False),
        ("file:///etc/passwd", False),
        ("", False),
    ],
)
def test_addresses(url: str, safe: bool) -> None:
    assert is_safe(url) is safe
