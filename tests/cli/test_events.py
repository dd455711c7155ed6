"""`muster events` on a terminal: local times, and nothing is cut off."""

from __future__ import annotations

import re
import sys

from muster.client.client import Client
from support.terminals import Terminal

MUSTER = [sys.executable, "-m", "muster"]


def shown(columns: int, *words: str) -> list[str]:
    with Terminal([*MUSTER, "events", "last", *words], columns=columns) as terminal:
        assert terminal.end() == 0
        return terminal.screen.lines


def test_texts_continue_below_their_column(client: Client) -> None:
    job, new = client.job(command=["sh", "-c", "echo out of luck >&2; exit 3"])
    run = client.start(client.prepare_run(job, new_job=new)).wait()
    lines = shown(80)
    assert lines[0] == "SEQ  TIME            WHAT       DATA"
    at = next(number for number, line in enumerate(lines) if "failure" in line)
    start = re.match(r"  \d  \d\d:\d\d:\d\d\.\d{3}    failure    ", lines[at])
    assert start is not None
    assert lines[at + 1].startswith(" " * start.end())
    assert lines[at + 1][start.end()] != " "
    joined = " ".join([lines[at][start.end() :], lines[at + 1].strip()])
    texts = [entry.text for entry in run.events()]
    assert any(text.startswith(joined) for text in texts)
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)


def test_a_wide_table_has_whole_times(client: Client) -> None:
    job, new = client.job(command=["true"])
    run = client.start(client.prepare_run(job, new_job=new)).wait()
    first = next(iter(run.events())).to_dict()["time"]
    assert shown(200, "-o", "wide")[1].split()[:2] == ["1", first]
