"""Lists of resources."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.server.oci import listings
from muster.server.oci.errors import OciError
from muster.server.oci.listings import every, page_token, read_page_token
from muster.store.resource_records import ResourceFilter, ResourceRecord
from muster.store.sqlite.store import SqliteStore

kinds = st.sampled_from([str, float])


@given(
    value=st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.text()),
    identifier=st.text(),
)
def test_a_page_begins_where_the_last_one_ended(value: str | float, identifier: str) -> None:
    if "\0" in f"{value}{identifier}":
        return
    token = page_token(value, identifier)
    assert read_page_token(token, type(value)) == (value, identifier)
    other: Any = float if isinstance(value, str) else str
    with pytest.raises(OciError, match="is not an opc-next-page"):
        read_page_token(token, other)


@given(text=st.text(), kind=kinds)
def test_any_page_is_read_or_refused(text: str, kind: Any) -> None:
    for token in (text, base64.urlsafe_b64encode(text.encode(errors="replace")).decode()):
        try:
            value, identifier = read_page_token(token, kind)
        except OciError as error:
            assert error.code == "InvalidParameter"
        else:
            assert isinstance(value, kind)
            assert "\0" not in identifier


@pytest.mark.parametrize("sort", ["created_at", "name"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8])
def test_every_resource_is_read_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, sort: Any
) -> None:
    monkeypatch.setattr(listings, "_LARGEST_PAGE", 2)
    store = SqliteStore.open(tmp_path / "m.db")
    one = ResourceRecord("log", "", "p", "n", "ACTIVE", "ana", 0.0, 0.0, {})
    for number in range(count):  # some are as old as others
        store.resources.insert(
            replace(one, id=f"l{number}", name=f"n{number // 3}", created_at=float(number // 3))
        )
    store.resources.insert(replace(one, id="other", project="q"))
    chosen = ResourceFilter("log", "p", sort=sort)
    found = [record.id for record in every(store.resources, chosen)]
    assert found == [record.id for record in store.resources.listing(chosen)]
    assert len(found) == count
    store.close()
