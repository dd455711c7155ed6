"""A server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.oci_teams import OciTeams, oci_teams


@pytest.fixture(scope="module")
def oci() -> Iterator[OciTeams]:
    with oci_teams() as made:
        yield made
