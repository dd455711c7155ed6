"""Find routes by verb and path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import NotFound
from muster.server.handlers import token_routes
from muster.server.routes import Routes, WrongVerb


@pytest.fixture
def routes() -> Routes[str]:
    made: Routes[str] = Routes()
    for template in ("/runs", "/runs/{text}", "/runs/{run_id}/nodes", "/runs/last/nodes", "/{a}/b"):
        made.add("GET", template, template)
    made.add("POST", "/runs", "post")
    return made


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/runs", "/runs", {}),
        ("/runs/", "/runs", {}),
        ("/runs/a%2Fb", "/runs/{text}", {"text": "a/b"}),
        ("/runs/%C3%A4", "/runs/{text}", {"text": "ä"}),
        ("/runs/x/nodes", "/runs/{run_id}/nodes", {"run_id": "x"}),
        ("/runs/last/nodes", "/runs/last/nodes", {}),
        ("/runs/..", "/runs/{text}", {"text": ".."}),
        ("/runs/b", "/runs/{text}", {"text": "b"}),
        ("/x/b", "/{a}/b", {"a": "x"}),
    ],
)
def test_paths(routes: Routes[str], path: str, template: str, values: dict[str, str]) -> None:
    assert routes.find("GET", path) == (template, template, values)


@pytest.mark.parametrize(
    "path", ["/", "", "/run", "/runs//nodes", "/runs/x/node", "/runs/x/nodes/y"]
)
def test_there_is_no_other_path(routes: Routes[str], path: str) -> None:
    with pytest.raises(NotFound, match=r"there is no path"):
        routes.find("GET", path)


def test_the_verbs_of_a_path(routes: Routes[str]) -> None:
    with pytest.raises(WrongVerb, match=r"PUT is not possible here \(use GET or POST\)"):
        routes.find("PUT", "/runs")
    with pytest.raises(ValueError, match="two routes for GET /runs"):
        routes.add("GET", "/runs", "again")


#: Making them takes longer than any search.
ROUTES = token_routes()


@given(
    words=st.lists(st.sampled_from(["runs", "jobs", "", "%2e", "nodes", "last", "%00"]) | st.text())
)
def test_any_path_has_an_answer(words: list[str]) -> None:
    for verb in ("GET", "BREW"):
        try:
            ROUTES.find(verb, "/".join(words))
        except (NotFound, WrongVerb):
            pass


@pytest.mark.parametrize(
    ("path", "template", "values"),
    [
        ("/b/x/o/a", "/b/{bucket}/o/{name...}", {"bucket": "x", "name": "a"}),
        ("/b/x/o/a/b%2Fc/", "/b/{bucket}/o/{name...}", {"bucket": "x", "name": "a/b/c/"}),
        ("/b/x/o/a//b", "/b/{bucket}/o/{name...}", {"bucket": "x", "name": "a//b"}),
        ("/b/x/o//", "/b/{bucket}/o/{name...}", {"bucket": "x", "name": "/"}),
        ("/b/x/o/", "/b/{bucket}/o", {"bucket": "x"}),
        ("/b/x/o", "/b/{bucket}/o", {"bucket": "x"}),
    ],
)
def test_the_rest_of_a_path(path: str, template: str, values: dict[str, str]) -> None:
    made: Routes[str] = Routes()
    for each in ("/b/{bucket}/o/{name...}", "/b/{bucket}/o"):
        made.add("GET", each, each)
    assert made.find("GET", path) == (template, template, values)
