"""The tables of unread fields agree with the published schema and the page on manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from muster.spec.formats.fields import RAW, Model
from muster.spec.formats.jobset.model import JobSet
from muster.spec.formats.jobset.schema import SCHEMA
from muster.spec.formats.jobset.unread_fields import NOTED, REFUSED

PAGE = Path(__file__).parents[4] / "docs/reference/jobset.md"


def test_every_field_is_on_the_page() -> None:
    page = PAGE.read_text()
    named = [name for table in (NOTED, REFUSED) for names in table.values() for name in names]
    assert [name for name in named if f"`{name}`" not in page] == []


def test_no_field_is_both_read_and_listed_as_unread() -> None:
    for table in (NOTED, REFUSED):
        for model, names in table.items():
            assert not set(names) & {info.encode_name for info in fields(model)}
    for model, names in NOTED.items():
        assert not set(names) & set(REFUSED.get(model, {}))


#: Fields of metadata that JobSet's schema leaves open, and fields newer than the schema.
_NOT_IN_SCHEMA = {"ownerReferences", "generateName", "activeDeadlineSeconds", "schedulingGroup"}


def _schemas(
    model: Model, schema: dict[str, Any], definitions: list[Any]
) -> Iterator[tuple[Model, set[str]]]:
    """Each model with the names of the schema's fields there."""
    while "$ref" in schema or "items" in schema:
        reference = schema.get("$ref")
        schema = definitions[int(reference.rpartition("/")[2])] if reference else schema["items"]
    properties = schema.get("properties", {})
    if properties:
        yield model, set(properties)
    for info in fields(model):
        for kind in _models(info.type):
            if info.encode_name in properties:
                yield from _schemas(kind, properties[info.encode_name], definitions)


def _models(annotation: Any) -> list[Model]:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def test_models_and_tables_name_fields_of_the_schema() -> None:
    data = json.loads(SCHEMA.read_text())
    for model, known in _schemas(JobSet, data["schema"], data["definitions"]):
        named = {info.encode_name for info in fields(model)} - {RAW}
        named |= {*NOTED.get(model, ()), *REFUSED.get(model, ())}
        assert named - known <= _NOT_IN_SCHEMA, model
