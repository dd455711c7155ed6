"""`muster ps` in pages."""

from __future__ import annotations

from muster.client.client import Client
from muster.spec.overrides import changes_from_mapping
from support.command import muster


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
        more = f"`--before {listed[-1]}` shows older ones, --all shows all"
        assert (more in page.stderr) == (len(pages) < 3)
    assert pages == [names[:2], names[2:4], names[4:]]
    assert muster("ps", *before).stderr == "no such runs\n"
    assert muster("ps", "-q", "--before", names[1]).stdout.split() == names[2:]
    assert "no run named" in muster("ps", "--before", "nothing").stderr


def test_pages_in_python(client: Client) -> None:
    names = submit(client, 4)
    first = client.summaries(limit=3)
    rest = client.summaries(limit=3, before=first[-1].position)
    assert [run.name for run in (*first, *rest)] == names
    assert [run.name for run in client.runs(before=first[0].position, limit=1)] == [names[1]]
