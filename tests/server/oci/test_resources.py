"""What the operations on all kinds of resources have in common."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from oci.data_science import DataScienceClient
from oci.data_science.models import CreateProjectDetails
from oci.exceptions import ServiceError

from muster.server.oci.errors import OciError
from muster.server.oci.resources import page_token, read_page_token
from support.oci_teams import VISION, OciTeams

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


@pytest.mark.parametrize("name", ["a\0b", "\0", "\\\0"])
def test_a_text_with_a_nul_character_is_refused(oci: OciTeams, name: str) -> None:
    client = oci.client(DataScienceClient)
    details = CreateProjectDetails(compartment_id=VISION, display_name=name)
    for call in (
        lambda: client.create_project(details),
        lambda: client.list_projects(VISION, display_name=name),
    ):
        with pytest.raises(ServiceError, match="NUL") as refused:
            call()
        assert (refused.value.status, refused.value.code) == (400, "InvalidParameter")


def test_a_text_about_a_nul_character_is_kept(oci: OciTeams) -> None:
    details = CreateProjectDetails(compartment_id=VISION, display_name=r"a \u0000 b")
    made = oci.client(DataScienceClient).create_project(details).data
    assert made.display_name == r"a \u0000 b"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (f"limit={'9' * 5000}", "limit has to be a whole number from 1 to 1000"),
        ("limit=\u0663", "limit has to be a whole number"),
        ("&".join(f"a{number}=" for number in range(1001)), "has more than 1000 parameters"),
    ],
)
def test_queries_that_no_client_sends(oci: OciTeams, query: str, problem: str) -> None:
    client = oci.client(DataScienceClient).base_client
    given = f"compartmentId={VISION}&{quote(query, safe='=&')}"
    answer = requests.get(f"{oci.url}/20190101/projects?{given}", auth=client.signer, timeout=20)
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")
    assert problem in answer.json()["message"]
