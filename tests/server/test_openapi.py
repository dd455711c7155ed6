"""The description of the API, as generators of clients read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from muster.server.openapi import document


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return document()


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from _objects(each)


def _found(described: dict[str, Any], ref: str) -> Any:
    part: Any = described
    for name in ref.removeprefix("#/").split("/"):
        part = part[name]
    return part


def test_what_is_referred_to_is_there(described: dict[str, Any]) -> None:
    refs = {part["$ref"] for part in _objects(described) if "$ref" in part}
    assert "#/components/schemas/ProblemDetails" in refs
    for ref in refs:
        assert _found(described, ref)
    for part in _objects(described):
        for ref in part.get("discriminator", {}).get("mapping", {}).values():
            assert _found(described, ref)


def test_types_have_names_of_their_own(described: dict[str, Any]) -> None:
    """Generators name classes by the title; those of two packages here have one name."""
    schemas = described["components"]["schemas"]
    assert all(schema["title"] == name for name, schema in schemas.items())
    assert all(name.isidentifier() for name in schemas)
    assert "Backoff" not in schemas
    assert "max" in schemas["SpecBackoff"]["properties"]
    assert "longest" in schemas["LifecycleBackoff"]["properties"]
    policy = schemas["FailurePolicy"]["properties"]["backoff"]
    assert policy["$ref"] == "#/components/schemas/SpecBackoff"


def test_no_schema_is_false(described: dict[str, Any]) -> None:
    """openapi-python-client reads none."""
    for part in _objects(described):
        assert part.get("items") is not False
        assert "prefixItems" not in part or part["maxItems"] == len(part["prefixItems"])
