"""What notebooks and pandas get of runs, jobs, nodes and events."""

from __future__ import annotations

import inspect
import json
import pydoc
import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

import muster
from muster.client.html import table
from muster.client.table import Table, flat

#: As a name, tag and message of a run that try to be more than text.
MARKUP = "<script>alert(1)</script>&"


class Elements(HTMLParser):
    """The elements of a text as HTML, and what a reader sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.open.append(tag)
        assert {name for name, _ in attrs} <= {"style"}, "nothing is loaded and nothing runs"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


#: Rank 1 is stopped when rank 0 has failed.
FIRST = "[ $NODE_RANK = 0 ] || exec sleep 60"


@pytest.fixture
def failed() -> muster.JobRun:
    return muster.run(
        command=["sh", "-c", f"{FIRST}; printf 'ValueError: {MARKUP}\\033[31m\\n' >&2; exit 3"],
        name="fails",
        nodes=2,
        run_name=MARKUP,
        tags={"team": "a"},
    ).wait(60)


def test_html_shows_text_as_it_is(failed: muster.JobRun) -> None:
    card = Elements(failed._repr_html_())
    assert card.names <= {"div", "b", "span", "pre", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<script>alert(1)</script>&\\x1b[31m" in card.text
    for expected in ("fails-1", "FAILED", failed.id, "team=a", "node-1", "STOPPED"):
        assert expected in card.text
    for shown in (
        muster.runs(),
        muster.jobs(),
        failed.nodes,
        failed.nodes[0],
        muster.get_job("fails"),
        muster.get_job("fails").events(),
        *failed.events(),
    ):
        found = Elements(shown._repr_html_())
        assert found.names == {"table", "thead", "tbody", "tr", "th", "td", *found.names & {"span"}}


def test_html_of_long_and_empty_tables() -> None:
    assert Elements(table([])).text == "none"
    text = Elements(table([{"N": str(n)} for n in range(250)])).text
    assert text.startswith("N012") and text.endswith("99and 150 more")


def test_a_table_is_printed_in_columns(failed: muster.JobRun) -> None:
    header, row = str(muster.runs()).splitlines()
    assert header.split() == ["RUN", "ID", "STATE", "NODES", "CREATED", "TIME", "DETAILS"]
    assert row.index("FAILED") == header.index("STATE")
    assert repr(muster.runs()) == f"[<JobRun fails-1 {failed.id} FAILED>]"
    assert str(Table()) == "[]"
    assert isinstance(failed.nodes[:1], Table) and failed.nodes[1].rank == 1
    assert re.match(r"fails-1 is FAILED after \d", str(failed))
    assert re.match(r"node-0 \(workers\) is FAILED after \d", str(failed.nodes[0]))
    assert str(next(failed.events())).endswith("Z the run was accepted")


def test_columns_for_pandas(failed: muster.JobRun) -> None:
    columns = muster.runs().to_dict()
    assert columns["name"] == ["fails-1"] and columns["tags.team"] == ["a"]
    assert columns["started_at"] == [failed.started_at]
    assert Table[muster.JobRun]().to_dict() == {}
    assert failed.nodes.to_dict()["rank"] == [0, 1]
    assert muster.jobs().to_dict()["name"] == ["fails"]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(columns)
    assert str(frame.dtypes["started_at"]).endswith("UTC]")
    assert list(pandas.DataFrame([run.to_dict() for run in muster.runs()]).state) == ["FAILED"]


def test_columns_of_items_with_different_tags() -> None:
    assert flat({"a": 1, "tags": {"x": 2}, "none": {}}) == {"a": 1, "tags.x": 2}


def test_all_times_are_aware_and_dicts_are_json(failed: muster.JobRun) -> None:
    job, event, record = muster.get_job("fails"), next(failed.events()), next(failed.logs())
    (created,) = job.events()
    assert failed.started_at is not None and failed.finished_at is not None
    times = [event.time, record.time, created.time, job.created_at, job.updated_at]
    times += [failed.created_at, failed.started_at, failed.finished_at]
    assert {time.tzinfo for time in times} == {UTC}
    assert max(times) - min(times) < timedelta(minutes=1)
    assert failed.seconds is not None and 0 < failed.seconds < 60
    for item in (failed, job, event, record, created, failed.nodes[0]):
        data = item.to_dict()
        assert json.loads(json.dumps(data)) == data
    assert event.to_dict()["time"].endswith("Z")


def test_runs_since_a_time(failed: muster.JobRun) -> None:
    assert muster.runs(since=timedelta(minutes=5))[0].id == failed.id
    assert muster.runs(since=failed.created_at)[0].id == failed.id
    assert muster.runs(since=datetime.now(UTC)) == []
    for wrong in (datetime.now(), 3.0):
        with pytest.raises(muster.InvalidInput, match="since: must be an aware datetime"):
            muster.runs(since=wrong)  # type: ignore[arg-type]


def test_runs_in_a_state(failed: muster.JobRun) -> None:
    assert [run.id for run in muster.runs(state="failed")] == [failed.id]
    assert muster.runs(state="SUCCEEDED") == []
    with pytest.raises(muster.InvalidInput, match=r"no state named 'faild' .*FAILED"):
        muster.runs(state="faild")


def test_the_module_lists_its_public_names() -> None:
    assert dir(muster) == sorted([*muster.__all__, "__version__"])
    for name in muster.__all__:
        assert inspect.signature(getattr(muster, name)) is not None
    assert list(inspect.signature(muster.Node).parameters)[:2] == ["rank", "group"]
    text = pydoc.plain(pydoc.render_doc(muster))
    assert "run(target:" in text and "class JobRun" in text


def test_columns_of_wide_characters_are_aligned() -> None:
    class Item:
        def __init__(self, **cells: str) -> None:
            self.cells = cells

        def _cells(self) -> dict[str, str]:
            return self.cells

        _facts = _cells

    text = str(Table([Item(NAME="日本", STATE="UP"), Item(NAME="ab", STATE="DOWN")]))
    assert text == "NAME  STATE\n日本  UP\nab    DOWN"
