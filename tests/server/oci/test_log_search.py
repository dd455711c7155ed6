"""Search logs with OCI's SDK: the output of job runs, and what programs have put there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.server.oci import log_search
from muster.spec.ocids import TENANCY
from support.oci_server import OciServer, module_server

oci = pytest.importorskip("oci")
DAY = timedelta(days=1)
#: Lines of both streams, and characters that are no ends of lines.
PROGRAM = r"""
import sys
for number in range(3):
    print("line", number, flush=True)
print("a\rb\x0bc\u2028d \x1b[31mred")
print("", flush=True)
print("to stderr", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    yield from module_server(tmp_path_factory)


def logged(server: OciServer, program: str, log: str | None = None) -> Any:
    """A job run that has ended. log: where it logs; None: a log of its own."""
    models = oci.data_science.models
    given = {"log_id": log} if log else {"enable_auto_log_creation": True}
    logging = models.JobLogConfigurationDetails(
        enable_logging=True, log_group_id=server.log_group, **given
    )
    return server.run(program, job_log_configuration_details=logging)


def new_log(server: OciServer, name: str) -> str:
    details = oci.logging.models.CreateLogDetails(display_name=name, log_type="CUSTOM")
    client = server.client("logging.LoggingManagementClient")
    work = client.create_log(server.log_group, details).headers["opc-work-request-id"]
    return str(client.get_work_request(work).data.resources[0].identifier)


def search(
    server: OciServer,
    query: str,
    start: datetime | None = None,
    end: datetime | None = None,
    **given: Any,
) -> Any:
    client = server.client("loggingsearch.LogSearchClient")
    now = datetime.now(UTC)
    details = oci.loggingsearch.models.SearchLogsDetails(
        time_start=start or now - DAY, time_end=end or now + DAY, search_query=query
    )
    return client.search_logs(details, **given)


def scope(server: OciServer, log: str = "") -> str:
    return f'search "{TENANCY}/{server.log_group}/{log}"'.replace('/"', '"')


def messages(found: Any) -> list[str]:
    return [one.data["logContent"]["data"]["message"] for one in found.data.results]


def test_the_lines_of_a_run_are_in_their_order(server: OciServer) -> None:
    run = logged(server, PROGRAM)
    query = f"{scope(server, run.log_details.log_id)} | where source = '*{run.id}'"
    found = search(server, f"{query} and data.stream = 'stdout' | sort by datetime asc")
    expected = ["line 0", "line 1", "line 2", "a\rb\x0bc\u2028d \x1b[31mred", ""]
    assert messages(found) == expected
    backwards = search(server, f"{query} and data.stream = 'stdout' | sort by datetime desc")
    assert messages(backwards) == expected[::-1]
    content = [one.data["logContent"] for one in found.data.results]
    assert len({one["id"] for one in content}) == 5
    assert sorted(one["time"] for one in content) == [one["time"] for one in content]
    assert {(one["source"], one["data"]["rank"]) for one in content} == {(run.id, 0)}
    assert "to stderr" in messages(search(server, f"{query} and data.stream = 'stderr'"))


def test_runs_that_share_a_log(server: OciServer) -> None:
    log = new_log(server, "shared")
    first, second = (logged(server, f"print('{name}')", log) for name in ("first", "second"))
    assert first.log_details.log_id == second.log_details.log_id == log
    both = search(server, f"{scope(server, log)} | sort by datetime asc")
    assert messages(both) == ["first", "second"]
    one = search(server, f"{scope(server, log)} | where source = '{second.id}'")
    assert messages(one) == ["second"]
    whole_group = search(server, f"{scope(server)} | where data.message = 'fir*'")
    assert messages(whole_group) == ["first"]
    whole = search(server, f"search \"{TENANCY}\" | where data.message in ('first', 'second')")
    assert sorted(messages(whole)) == ["first", "second"]
    other = new_log(server, "other")
    assert messages(search(server, scope(server, other))) == []


@pytest.mark.slow
def test_many_lines_of_one_moment_are_found_in_short_times(server: OciServer) -> None:
    """ADS divides the time until it finds fewer than 1,000 lines, down to a millisecond."""
    run = logged(server, "print('\\n'.join(map(str, range(5000))))")
    query = f"{scope(server, run.log_details.log_id)} | sort by datetime asc"

    def divided(start: datetime, end: datetime) -> list[str]:
        found = messages(search(server, query, start, end, limit=1000))
        if len(found) < 1000:
            return found
        assert end - start > timedelta(milliseconds=1), "too many lines in a millisecond"
        middle = start + (end - start) / 2
        return divided(start, middle) + divided(middle, end)

    start = run.time_started - timedelta(seconds=1)
    found = divided(start, datetime.now(UTC) + timedelta(seconds=1))
    assert list(dict.fromkeys(found)) == [str(number) for number in range(5000)]


def test_pages_and_counts(server: OciServer) -> None:
    run = logged(server, "for number in range(25): print(number)")
    query = f"{scope(server, run.log_details.log_id)} | sort by datetime asc"
    pages, page = list[str](), None
    while True:
        given = {} if page is None else {"page": page}
        found = search(server, query, limit=10, **given)
        pages += messages(found)
        page = found.headers.get("opc-next-page")
        if page is None:
            break
    assert pages == [str(number) for number in range(25)]
    assert messages(search(server, f"{query} | limit 3")) == ["0", "1", "2"]
    (counted,) = search(server, f"{query} | count").data.results
    assert counted.data == {"count": 25}
    (chosen, *_) = search(server, f"{query} | select data.message").data.results
    assert chosen.data == {"data.message": "0"}


def test_times_of_a_search(server: OciServer) -> None:
    run = logged(server, "print('now')")
    query, now = scope(server, run.log_details.log_id), datetime.now(UTC)
    assert messages(search(server, query, now - DAY, now - DAY / 2)) == []
    assert messages(search(server, query, now - DAY, now)) == ["now"]


def test_the_output_of_runs_that_ended_before_is_not_read(
    server: OciServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, read = logged(server, "print('before')"), list[str]()

    def output(_request: Any, record: Any, _start: float) -> Iterator[Any]:
        read.append(record.id)
        return iter(())

    monkeypatch.setattr(log_search, "_output", output)
    query, now = scope(server), datetime.now(UTC)
    search(server, query, now - DAY, now)
    assert run.id.rpartition(".")[2] in read
    read.clear()
    search(server, query, now + DAY / 2, now + DAY)
    assert read == []


def test_entries_of_programs(server: OciServer) -> None:
    models, log = oci.loggingingestion.models, new_log(server, "mine")
    client, at = server.client("loggingingestion.LoggingClient"), datetime.now(UTC)
    batch = models.LogEntryBatch(
        entries=[
            models.LogEntry(data=f"entry {number}", id=str(number), time=at + number * DAY / 1e6)
            for number in range(3)
        ],
        source="my program",
        type="training",
        subject="epoch",
        defaultlogentrytime=at,
    )
    client.put_logs(log, models.PutLogsDetails(specversion="1.0", log_entry_batches=[batch]))
    found = search(server, f"{scope(server, log)} | where type = 'training' | sort by id asc")
    assert messages(found) == ["entry 0", "entry 1", "entry 2"]
    content = found.data.results[0].data["logContent"]
    assert (content["source"], content["subject"]) == ("my program", "epoch")
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        client.put_logs(
            "ocid1.log.muster.local..0000000000",
            models.PutLogsDetails(specversion="1.0", log_entry_batches=[batch]),
        )
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "cannot be read at character 1: the end"),
        ("search x", "cannot be read at character 8"),
        (f'search "{TENANCY}" | where', "cannot be read"),
        (f'search "{TENANCY}" | drop table', "cannot be read at character"),
        (f'search "{TENANCY}" | where x.y = 1', f"at character {len(TENANCY) + 19}: .* 'x.y'"),
        (f'search "{TENANCY}" | sort by level', "no field 'level'; there are data, datetime"),
        (f'search "{TENANCY}" | limit {"9" * 5000}', "cannot be read at character"),
    ],
)
def test_queries_that_cannot_be(server: OciServer, query: str, problem: str) -> None:
    with pytest.raises(oci.exceptions.ServiceError, match=problem) as caught:
        search(server, query)
    assert (caught.value.status, caught.value.code) == (400, "InvalidParameter")


@pytest.mark.parametrize("days", [(1, 0), (15, 0)])
def test_times_that_cannot_be(server: OciServer, days: Sequence[int]) -> None:
    now, (before, _) = datetime.now(UTC), days
    start, end = (now, now - DAY) if before == 1 else (now - before * DAY, now)
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        search(server, f'search "{TENANCY}"', start, end)
    assert caught.value.status == 400


def test_the_first_entries_of_several_fields(server: OciServer) -> None:
    """A page of them is what it would be of all."""
    models, log = oci.loggingingestion.models, new_log(server, "sorted")
    client, at = server.client("loggingingestion.LoggingClient"), datetime.now(UTC)
    for subject, data in (("b", "1"), ("a", "1"), ("b", "2"), ("a", "3"), ("a", "2"), ("b", "1")):
        batch = models.LogEntryBatch(
            entries=[models.LogEntry(data=data)],
            source="s",
            type="t",
            subject=subject,
            defaultlogentrytime=at,
        )
        client.put_logs(log, models.PutLogsDetails(specversion="1.0", log_entry_batches=[batch]))
    query = f"{scope(server, log)} | sort by subject asc, data.message desc"
    pages = [messages(search(server, query, limit=4, page=page)) for page in ("0", "4")]
    assert pages == [["3", "2", "1", "2"], ["1", "1"]]
    assert messages(search(server, f"{query} | limit 0")) == []


def test_entries_of_the_first_year(server: OciServer) -> None:
    """One of a strange time does not keep others from being found."""
    log, client = new_log(server, "old"), server.client("loggingingestion.LoggingClient")

    def put(time: str) -> None:
        entry = {"data": "x", "time": time}
        batch = {"source": "s", "type": "t", "entries": [entry]}
        client.put_logs(log, {"specversion": "1.0", "logEntryBatches": [batch]})

    put("0001-01-01T00:00:00Z")
    put(datetime.now(UTC).isoformat())
    assert messages(search(server, scope(server, log))) == ["x"]
    with pytest.raises(oci.exceptions.ServiceError, match="years 1 to 9999") as caught:
        put("0001-01-01T00:00:00+14:00")
    assert caught.value.status == 400
