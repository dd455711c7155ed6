"""URLs of databases, and what messages say of them."""

from __future__ import annotations

import pytest

from muster.errors import InvalidInput
from muster.store.postgres.url import parameters_of, place_of


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql+psycopg://ann:pw@db.example:5433/jobs", "jobs at db.example:5433"),
        ("postgresql://ann@db.example/jobs", "jobs at db.example"),
        ("postgres://db.example/jobs\n", "jobs at db.example"),
        ("postgresql:///jobs?host=/run/postgresql", "jobs at /run/postgresql"),
        ("postgresql:///jobs", "jobs at the local socket"),
        ("postgresql://ann@db.example", "ann at db.example"),
        ("postgresql://h1,h2/jobs", "jobs at h1,h2"),
    ],
)
def test_a_database_is_named_without_its_password(url: str, place: str) -> None:
    assert place_of(parameters_of(url)) == f"the PostgreSQL database {place}"


def test_settings_of_the_url_are_kept() -> None:
    found = parameters_of("postgresql://ann:p%40ss@h/jobs?connect_timeout=60&sslmode=verify-full")
    assert (found["password"], found["connect_timeout"], found["sslmode"]) == (
        *("p@ss", "60"),
        "verify-full",
    )
    assert found["application_name"] == "muster"


@pytest.mark.parametrize("url", ["", "x", "jobs", "sqlite:///x", "postgresql:x", "mysql://h/x"])
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="write postgresql"):
        parameters_of(url)


@pytest.mark.parametrize("url", ["postgresql://u:p%zz@h/x", "postgresql://h/x?unknown=secret"])
def test_a_malformed_url_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be read") as error:
        parameters_of(url)
    assert "secret" not in str(error.value) and "%zz" not in str(error.value)
