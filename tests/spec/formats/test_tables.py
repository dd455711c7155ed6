"""The page on manifests names every field that is not simply read."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import fields

from muster.spec.formats.tables import NOTED, REFUSED

PAGE = Path(__file__).parents[3] / "docs" / "jobset.md"


def test_every_field_is_on_the_page() -> None:
    page = PAGE.read_text()
    named = [name for table in (NOTED, REFUSED) for theirs in table.values() for name in theirs]
    assert [name for name in named if f"`{name}`" not in page] == []


def test_no_field_is_both_read_and_left_out() -> None:
    for table in (NOTED, REFUSED):
        for model, theirs in table.items():
            assert not set(theirs) & {info.encode_name for info in fields(model)}
    for model, theirs in NOTED.items():
        assert not set(theirs) & set(REFUSED.get(model, {}))
