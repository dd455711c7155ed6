"""The URL of a PostgreSQL database."""

from __future__ import annotations

from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from muster.errors import InvalidInput, Problem

#: Parameters of libpq that the URL does not give: a database that does not answer is noticed before
#: the leases of those who wait for it expire.
_DEFAULTS: dict[str, Any] = {
    "application_name": "muster",
    "client_encoding": "utf8",
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 5,  # seconds
    "keepalives_interval": 2,  # seconds
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}


def parameters_of(url: str) -> dict[str, Any]:
    """The parameters of libpq for a URL such as `postgresql+psycopg://user:password@host/name`.
    Raises InvalidInput, without the URL, which may have a password."""
    scheme, colon, rest = url.strip().partition("://")
    if scheme not in ("postgresql", "postgresql+psycopg", "postgres") or not colon:
        hint = "write postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME"
        raise InvalidInput(Problem("--database-url", "not a URL of PostgreSQL", hint))
    try:
        given = conninfo_to_dict(f"postgresql://{rest}")
    except ProgrammingError:  # its text may have the password
        hint = "percent-encode special characters: %40 is @"
        raise InvalidInput(Problem("--database-url", "cannot be read", hint)) from None
    return {**_DEFAULTS, **given}


def place_of(parameters: dict[str, Any]) -> str:
    """Where a database is, for messages: host and name, no password."""
    host = parameters.get("host") or parameters.get("hostaddr") or "the local socket"
    port = f":{parameters['port']}" if parameters.get("port", "").strip(",") else ""
    name = parameters.get("dbname") or parameters.get("user") or "of the user"
    return f"the PostgreSQL database {name} at {host}{port}"
