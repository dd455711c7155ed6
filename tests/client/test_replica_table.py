"""The table of a run's replicas in Python."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import muster
from muster.api.replica_table import TableQuery
from muster.client.client import Client
from muster.client.job import Job
from muster.client.replica_table import text_of, typed
from muster.control.persist import plan_to_run
from muster.errors import InvalidInput
from muster.service.replica_table import flat
from support.array_runs import START, recorded
from support.embedded import embedded


@pytest.fixture
def client(own_home: Path) -> Client:
    return Client()


def node(state: str, seconds: float | None = None, /, **metrics: Any) -> Mapping[str, Any]:
    end = None if seconds is None else START + seconds
    code = {"SUCCEEDED": 0, "FAILED": 7}.get(state)
    text = json.dumps(metrics) if metrics else ""
    return {"state": state, "exit_code": code, "finished_at": end, "metrics": text}


NODES = {
    0: node("SUCCEEDED", 2, loss=9.0, val={"acc": 0.5, "top": {"five": 1}}),
    1: node("FAILED", 4),
    2: node("SUCCEEDED", 1, loss=10.0, note="x"),
    3: node("READY"),
    4: node("SUCCEEDED", 3, loss=math.nan),
}
ARRAY = {"lr": "0.1,1e-2,007", "opt": "sgd,adam"}


def test_rows_are_flat_and_typed(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    rows = run.table().rows
    assert rows[0] == {
        "replica": 0,
        "lr": 0.1,
        "opt": "sgd",
        "state": "SUCCEEDED",
        "exit_code": 0,
        "seconds": 2.0,
        "started_at": datetime.fromtimestamp(START, UTC),
        "finished_at": datetime.fromtimestamp(START + 2, UTC),
        "loss": 9.0,
        "val.acc": 0.5,
        "val.top.five": 1,
    }
    assert [(row["replica"], row["state"], row["exit_code"]) for row in rows] == [
        (0, "SUCCEEDED", 0),
        (1, "FAILED", 7),
        (2, "SUCCEEDED", 0),
        (3, "RUNNING", None),
        (4, "SUCCEEDED", 0),
    ]
    table = run.table(include_not_started=True)
    assert len(table) == 6
    assert (table.rows[5]["lr"], table.rows[5]["started_at"]) == ("007", None)
    columns = table.to_dict()
    assert [*columns][-4:] == ["loss", "val.acc", "val.top.five", "note"]
    assert columns["note"] == [None, None, "x", None, None, None]
    assert run.table().not_started == 1
    assert run.replica_states == {"SUCCEEDED": 3, "FAILED": 1, "RUNNING": 1, "NOT_STARTED": 1}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"sort": "loss"}, [0, 2, 1, 3, 4]),
        ({"sort": "loss", "descending": True}, [2, 0, 1, 3, 4]),
        ({"sort": "time"}, [2, 0, 4, 1, 3]),
        ({"sort": "seconds", "descending": True, "limit": 2}, [1, 4]),
        ({"sort": "lr"}, [2, 3, 0, 1, 4]),
        ({"sort": "param.lr", "descending": True}, [4, 0, 1, 2, 3]),
        ({"sort": "opt"}, [1, 3, 0, 2, 4]),
        ({"sort": "metrics.val.acc"}, [0, 1, 2, 3, 4]),
        ({"sort": "state"}, [3, 0, 2, 4, 1]),
        ({"sort": "exit"}, [0, 2, 4, 1, 3]),
        ({"descending": True}, [4, 3, 2, 1, 0]),
        ({"descending": True, "limit": 2}, [4, 3]),
        ({"limit": 2}, [0, 1]),
        ({"states": ["succeeded"]}, [0, 2, 4]),
        ({"states": ["running", "failed"]}, [1, 3]),
        ({"states": ["succeeded"], "limit": 1, "descending": True}, [4]),
        ({"replicas": [4, 1, 5]}, [1, 4]),
        ({"replicas": [4, 1, 5], "include_not_started": True}, [1, 4, 5]),
        ({"include_not_started": True, "limit": 0}, [0, 1, 2, 3, 4, 5]),
        ({"replicas": "1,3-4"}, [1, 3, 4]),
        ({"states": "failed"}, [1]),
        ({"sort": "-replica", "limit": 2}, [4, 3]),
    ],
)
def test_replicas_are_sorted_and_selected(
    client: Client, options: dict[str, Any], found: list[int]
) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    assert [row["replica"] for row in run.table(**options)] == found


def test_bad_choices_of_replicas(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    with pytest.raises(InvalidInput, match=r"^replicas: 'a' is not a replica number"):
        run.table(replicas="a")
    with pytest.raises(InvalidInput, match="unknown state 'bogus'"):
        run.table(states="bogus")
    with pytest.raises(InvalidInput, match=r"^only: conflicts with unfinished"):
        run.retry(only="0", unfinished=True)


def test_a_file_that_was_not_recorded_is_a_column(client: Client) -> None:
    nodes = {0: node("SUCCEEDED", 1), 1: node("SUCCEEDED", 1, **{"metrics.json": "too long"})}
    run = recorded(client, nodes, array={"lr": "1..2"})
    assert run.table(sort="metrics.json").rows[0]["metrics.json"] == "too long"


def test_several_nodes_are_one_replica(client: Client) -> None:
    nodes = {
        0: node("SUCCEEDED", 2),
        1: node("SUCCEEDED", 3, loss=1),
        2: node("STOPPED", 3),
        3: {**node("FAILED", 2), "exit_code": 9},
        4: {**node("RUNNING"), "started_at": START + 5},
        5: node("SUCCEEDED", 2),
    }
    run = recorded(client, nodes, array={"lr": "1..4"}, nodes=2, parallelism=1)
    rows = run.table(limit=3).rows
    assert [(row["replica"], row["state"], row["exit_code"]) for row in rows] == [
        (0, "SUCCEEDED", 0),
        (1, "FAILED", 9),
        (2, "RUNNING", None),
    ]
    assert (rows[0]["loss"], rows[0]["seconds"]) == (1, 3.0)
    assert (rows[2]["started_at"].timestamp(), rows[2]["finished_at"]) == (START, None)
    assert [row["replica"] for row in run.table(limit=1)] == [0]
    assert [row["replica"] for row in run.table(states=["FAILED"])] == [1]
    assert run.table().states == {"SUCCEEDED": 1, "FAILED": 1, "RUNNING": 1}


def test_names_that_are_used_already_say_what_they_are(client: Client) -> None:
    nodes = {0: node("SUCCEEDED", 2, loss=1, lr=0.5, state="good", TIME=3)}
    run = recorded(client, nodes, array={"lr": "2", "time": "5"})
    row = run.table().rows[0]
    assert (row["lr"], row["metrics.lr"], row["param.time"]) == (2, 0.5, 5)
    assert (row["state"], row["metrics.state"], row["metrics.TIME"]) == ("SUCCEEDED", "good", 3)
    assert "metrics.TIME" in str(run.table())


def test_no_column_replaces_another(client: Client) -> None:
    nodes = {0: node("SUCCEEDED", 2, **{"lr": 0.5, "metrics.lr": 7})}
    run = recorded(client, nodes, array={"lr": "2", "state": "a", "param.state": "b"})
    row = run.table().rows[0]
    assert (row["lr"], row["metrics.lr"], row["metrics.metrics.lr"]) == (2, 0.5, 7)
    assert (row["state"], row["param.state"], row["param.param.state"]) == ("SUCCEEDED", "a", "b")


def test_numbers_and_limits_are_taken_as_elsewhere(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    assert len(run.table(limit=0)) == len(run.table())
    assert [row["replica"] for row in run.table(replicas="1-2")] == [1, 2]
    assert run.replica_ranks("1-2") == run.replica_ranks([1, 2]) == [1, 2]
    assert run.replica_ranks(3) == [3]
    with pytest.raises(InvalidInput, match="less than 1,000,000"):
        run.table(replicas="0-99999999")


def test_a_table_is_shown(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    table = run.table(limit=3)
    assert str(table).splitlines() == [
        "REPLICA    lr  opt   STATE      EXIT  TIME  loss  val.acc  val.top.five  note",
        "      0   0.1  sgd   SUCCEEDED     0  2.0s     9      0.5             1  -",
        "      1   0.1  adam  FAILED        7  4.0s     -        -             -  -",
        "      2  1e-2  sgd   SUCCEEDED     0  1.0s    10        -             -  x",
    ]
    assert repr(table) == "<Replicas 4 of 6 done, 1 failed, 1 running>"
    assert "<th" in table._repr_html_() and "&#9679;" in table._repr_html_()
    assert "4 of 6 done, 1 failed, 1 running" in run._repr_html_()


def test_a_run_without_an_array_has_a_row_for_each_replica(client: Client) -> None:
    run = muster.run(command="true", nodes=2).wait(60)
    assert [(row["replica"], row["state"]) for row in run.table()] == [(0, "SUCCEEDED")]


def test_an_unknown_column_is_refused_once_there_are_metrics(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY)
    with pytest.raises(InvalidInput, match="sweep-1 has no accuracy"):
        run.table(sort="accuracy")
    waiting = recorded(client, {0: node("RUNNING")}, array=ARRAY, state="IN_PROGRESS")
    assert len(waiting.table(sort="accuracy")) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('{"a": {"b": {"c": 1}}, "d": [1, {"e": 2}]}', {"a.b.c": 1, "d": [1, {"e": 2}]}),
        ('{"a": {}}', {"a": {}}),
        ("{}", {}),
        ("3", {"metrics": 3}),
    ],
)
def test_metrics_are_flat(text: str, found: dict[str, Any]) -> None:
    assert flat(text) == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("17", 17),
        ("0", 0),
        ("-1e-3", -0.001),
        *((text, text) for text in ("007", "1e999", "a", "1_000", "", "nan", "9" * 5000, "٣")),
    ],
)
def test_parameters_are_numbers_if_they_are_written_so(text: str, value: Any) -> None:
    assert typed(text) == value
    assert type(typed(text)) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.1 + 0.2, "0.3"), (3, "3"), (True, "true"), ("x", "x"), ([1, "a"], '[1, "a"]')],
)
def test_metrics_in_tables(value: Any, text: str) -> None:
    assert text_of(value) == text


SECRET = "hunter2-4711"


def test_a_parameter_whose_name_sounds_secret_is_a_parameter(client: Client) -> None:
    """It is sealed in the store, where its values cannot be counted."""
    array = {"token_dim": "128,256", "lr": "0.1,0.2"}
    run = recorded(client, {number: node("SUCCEEDED", 1) for number in range(4)}, array=array)
    found = [(row["token_dim"], row["lr"]) for row in run.table()]
    assert found == [("***", 0.1), ("***", 0.2), ("***", 0.1), ("***", 0.2)]
    # its own values decide the order
    assert [row["replica"] for row in run.table(sort="token_dim", descending=True)] == [2, 3, 0, 1]


@pytest.mark.parametrize(
    "array",
    [
        {"api_token": f"{SECRET},x", "lr": "0.1,0.2"},
        {"rows": [{"api_token": SECRET, "lr": 0.1}, {"api_token": "x", "lr": 0.2}]},
    ],
)
def test_no_secret_of_a_parameter_is_shown_or_stored(
    client: Client, array: dict[str, Any], own_home: Path
) -> None:
    run = recorded(client, {0: node("SUCCEEDED", 1, note="api_token=swordfish")}, array=array)
    table = run.table()
    texts = [str(table), table.rows, table.to_dict(), table._repr_html_(), *run.events()]
    texts += [run.to_dict(), run.spec, run.settings(), run._repr_html_(), run.notes]
    job = Job(client, embedded(client).job(run.job_id))
    texts += [job.spec, job.written, job.to_dict(), job._repr_html_(), *job.events()]
    shown = " ".join(map(str, texts))
    assert [text for text in (SECRET, "swordfish", "sealed") if text in shown] == []
    assert [
        path for path in own_home.glob("muster.db*") if SECRET.encode() in path.read_bytes()
    ] == []
    home = embedded(client).home
    plan = plan_to_run(home, embedded(client).run(run.id))
    assert plan.parameters is not None
    assert plan.parameters.values(0)["api_token"] == SECRET


def test_without_the_key_the_other_columns_are_shown(client: Client) -> None:
    run = recorded(client, {0: node("SUCCEEDED", 1, loss=3)}, array={"api_token": SECRET, "lr": 1})
    embedded(client).home.secret_key.unlink()
    assert run.table().rows[0] | {"seconds": 1.0} == run.table().rows[0]
    row = run.table(sort="loss").rows[0]
    assert (row["api_token"], row["lr"], row["loss"]) == ("***", "***", 3)


def test_rows_that_match_are_counted_before_the_limit(client: Client) -> None:
    run = recorded(client, NODES, array=ARRAY, parallelism=2)
    query = TableQuery(replicas=[0, 1, 2, 5], limit=1)
    found = client.api.replica_table([run.id], query)
    assert ([row.replica for row in found.rows], found.matching) == ([0], 3)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("chosen", [{}, {"replicas": [0, 2, 3, 4]}, {"limit": 3}])
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_table_is_read_in_pages(
    client: Client, descending: bool, chosen: dict[str, Any], nodes: int
) -> None:
    records = {rank: node("SUCCEEDED", 2) for rank in range(5 * nodes)}
    if nodes > 1:
        del records[3]  # a replica of which only one node has started
    run = recorded(client, records, array=ARRAY, nodes=nodes)
    whole = TableQuery(descending=descending, **chosen)
    expected = client.api.replica_table([run.id], whole)
    rows: list[int] = []
    query = replace(whole, page=2, counts=False)
    for _ in range(9):
        found = client.api.replica_table([run.id], query)
        assert len(found.rows) <= 2
        rows += [row.replica for row in found.rows]
        if found.next is None:
            break
        left = None if query.limit is None else query.limit - len(found.rows)
        query = replace(query, after=found.next, limit=left)
    assert rows == [row.replica for row in expected.rows]
    assert expected.next is None
    with pytest.raises(InvalidInput, match="after"):
        client.api.replica_table([run.id], TableQuery(sort="lr", after=1))
