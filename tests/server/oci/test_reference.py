"""The page that lists the operations."""

from __future__ import annotations

from pathlib import Path

from muster.server.oci.reference import page
from muster.server.oci.routes import all_routes

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "oci.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == "\n".join(page()) + "\n", "run `make docs`"


def test_it_has_each_operation() -> None:
    lines = PAGE.read_text().splitlines()
    for route in all_routes():
        assert f"| {route.operation} | `{route.verb} {route.path}` |" in lines
