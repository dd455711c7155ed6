"""The page that lists the operations."""

from __future__ import annotations

from pathlib import Path

from muster.iam.policies.operations import OPERATIONS
from muster.server.oci.reference import page
from muster.server.oci.routes import all_routes

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "oci.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == "\n".join(page()) + "\n", "run `make docs`"


def test_it_has_each_operation() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = {(name.removeprefix("| "), request): needed for name, request, needed in rows}
    for route in all_routes():
        needed = found[route.operation, f"`{route.verb} {route.path}`"]
        assert (f"`{route.permission}`" in needed) == (route.permission is not None)


def test_conditions_know_each_operation() -> None:
    """As `request.operation` has it."""
    named = {one.operation for one in all_routes()} - {""}
    assert {"".join(map(str.capitalize, one.split("_"))) for one in named} == OPERATIONS
