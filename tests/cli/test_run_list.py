"""`muster ps` in pages."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest

import muster as muster_api
from muster.client.client import Client
from muster.errors import InvalidInput
from muster.spec.overrides import changes_from_mapping
from support.command import muster
from support.embedded import embedded


def submit(client: Client, count: int) -> list[str]:
    """Submit suspended runs. Their names, newest first."""
    changes = changes_from_mapping({"suspend": True})
    names = [
        client.start(client.prepare(None, changes, command=["true"])).name for _ in range(count)
    ]
    return names[::-1]


def test_a_full_page_names_the_next_one(client: Client) -> None:
    names = submit(client, 5)
    pages, before = [], []
    for _ in range(3):
        page = muster("ps", "--limit", "2", *before)
        listed = [line.split()[0] for line in page.stdout.splitlines()[1:]]
        pages.append(listed)
        before = ["--before", listed[-1]]
        more = f"showing 2 runs; older: `muster ps --before {listed[-1]}`; all: `--all`"
        assert (more in page.stderr) == (len(pages) < 3)
    assert pages == [names[:2], names[2:4], names[4:]]
    assert muster("ps", *before).stderr == "no such runs\n"
    assert muster("ps", "-q", "--before", names[1]).stdout.split() == names[2:]
    assert "no run named" in muster("ps", "--before", "nothing").stderr


def test_pages_in_python(client: Client) -> None:
    names = submit(client, 4)
    first = client.summaries(limit=3)
    last = first[-1]
    for before in (last, last.position, last.name, last.id, last.id[:9], client.run(last.name)):
        rest = client.summaries(limit=3, before=before)
        assert [run.name for run in (*first, *rest)] == names, before
    assert [run.name for run in client.runs(before=first[0], limit=1)] == [names[1]]
    home = embedded(client).home.root
    assert [run.name for run in muster_api.runs(before=names[2], limit=2, home=home)] == names[3:]


def test_no_limit_is_the_same_in_commands_and_in_python(client: Client) -> None:
    names = submit(client, 2)
    assert muster("ps", "-q", "--limit", "0").stdout.split() == names
    assert [run.name for run in client.summaries(limit=0)] == names
    assert [run.name for run in client.summaries(since=timedelta(hours=1))] == names
    assert [run.name for run in client.summaries(since=time.time() + 60)] == []
    assert [run.name for run in client.summaries(states="suspended")] == names
    assert client.summaries(states=[]) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit": -1}, "limit: must be 0 (all) or a larger whole number, not -1"),
        ({"limit": "3"}, "limit: must be 0 (all) or a larger whole number, not '3'"),
        ({"states": ["ended"]}, "states: no state named 'ended'"),
        ({"since": "1h"}, "since: must be an aware datetime or a timedelta, not '1h'"),
        ({"before": 1.5}, "before: must be a run, a summary or the name of a run, not 1.5"),
        ({"before": "p-9"}, "no run named 'p-9'"),
    ],
)
def test_a_wrong_filter_is_refused_in_a_sentence(
    client: Client, wrong: dict[str, Any], message: str
) -> None:
    for listing in (client.summaries, client.runs):
        with pytest.raises(InvalidInput) as error:
            listing(**wrong)
        assert str(error.value).startswith(message)
