"""Pages of lists, entity tags, and changes on condition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_runs import end, prepare, start
from support.teams import Teams, serving_teams


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with serving_teams() as made:
        api = made.api("anouk")
        for number in range(5):
            start(api, f"echo {number}", suspend=True, nodes=5)
        yield made


def pages(teams: Teams, path: str) -> list[list[Any]]:
    """All pages of a list, by the links from each to the next one."""
    token, found = teams.token("anouk"), []
    while True:
        reply = teams.request("GET", path, token)
        assert reply.status == 200, reply
        found.append(reply.json)
        link = reply.headers.get("link")
        if link is None:
            return found
        matched = re.fullmatch('<(.+)>; rel="next"', link)
        assert matched is not None, link
        path = matched[1]


@pytest.mark.parametrize("limit", [1, 2, 5, 7])
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/jobs?deleted=true", "/v1/runs/last/nodes"])
def test_pages_are_the_whole_list(teams: Teams, path: str, limit: int) -> None:
    (whole,) = pages(teams, path)
    assert len(whole) == 5
    found = pages(teams, f"{path}{'&' if '?' in path else '?'}limit={limit}")
    assert [one for page in found for one in page] == whole
    assert all(len(page) == limit for page in found[:-1])


def test_pages_of_events(teams: Teams) -> None:
    api = teams.api("anouk")
    run = start(api, "true", suspend=True)
    api.scale(run.id, "workers", 1)
    end(api, run.id)
    path = f"/v1/runs/{run.id}/events"
    (whole,) = pages(teams, path)
    assert [one for page in pages(teams, f"{path}?limit=1") for one in page] == whole


def test_a_limit_is_not_negative(teams: Teams) -> None:
    for path in ("/v1/runs", "/v1/jobs", "/v1/runs/last/nodes", "/v1/runs/last/events"):
        reply = teams.request("GET", f"{path}?limit=-1", teams.token("anouk"))
        assert reply.status == 422
        assert reply.json["detail"] == "limit: must be at least 0, not -1"


def test_what_has_not_changed_is_not_sent_again(teams: Teams) -> None:
    token = teams.token("anouk")
    first = teams.request("GET", "/v1/runs", token)
    tag = first.headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        again = teams.request("GET", "/v1/runs", token, headers={"If-None-Match": known})
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    for other in ('"other"', tag.strip('"')):
        reply = teams.request("GET", "/v1/runs", token, headers={"If-None-Match": other})
        assert (reply.status, reply.body) == (200, first.body)


@pytest.mark.parametrize(
    ("verb", "body"), [("PATCH", {"changes": ["description=other"]}), ("DELETE", None)]
)
def test_a_job_that_has_changed_is_not_changed(teams: Teams, verb: str, body: Any) -> None:
    api, token = teams.api("anouk"), teams.token("anouk")
    job = api.create_job(prepare(api, f"echo {verb}").job)
    path = f"/v1/jobs/{job.id}"
    read = teams.request("GET", path, token).headers["etag"]
    api.edit_job(job.id, ["description=meanwhile"])
    refused = teams.request(verb, path, token, body, headers={"If-Match": read})
    assert (refused.status, refused.problem) == (412, "Changed")
    assert refused.json["kinds"][0] == "Conflict"
    assert api.job(job.id).description == "meanwhile"
    for tag in (teams.request("GET", path, token).headers["etag"], "*"):
        assert teams.request(verb, path, token, body, headers={"If-Match": tag}).status == 200
