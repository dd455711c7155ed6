"""`muster logs` of a run with several attempts."""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.cli.logs import logs
from muster.client.client import Client
from muster.errors import InvalidInput
from muster.frameworks import registry
from muster.frameworks.base import Cluster, Framework, RoleSetup, Service, Setup, Succeeds
from muster.spec.overrides import overrides_from_mapping
from muster.storage.log_index import LogWriter, StreamInfo
from support.embedded import embedded


@pytest.fixture
def run_id(client: Client) -> str:
    """A run that has ended, to which two further attempts are added by hand."""
    job, new = client.job(None, command=["true"], name="demo")
    run = client.start(client.prepare_run(job, overrides_from_mapping({}), new_job=new)).wait(60)
    for attempt in (1, 2):
        folder = embedded(client).home.run_dir(run.id).logs(attempt)
        folder.mkdir()
        writer = LogWriter(folder, [StreamInfo(0, "0.out", 0, "workers", "id", 0, "stdout")])
        (folder / "0.out").write_text(f"line of {attempt}\n")
        writer.note_growth(attempt, [0])
        writer.finish(attempt)
        writer.close()
    return run.id


def call(*args: str) -> Result:
    return CliRunner().invoke(logs, args, catch_exceptions=False)


def by_attempt(result: Result) -> list[tuple[int, str]]:
    found: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    return [(record["attempt"], record["message"]) for record in found]


def test_records_have_their_attempt(run_id: str) -> None:
    program = ("--stream", "stdout")
    assert by_attempt(call(run_id, "--json", *program)) == [(2, "line of 2")]
    assert by_attempt(call(run_id, "--json", "--attempt", "1", *program)) == [(1, "line of 1")]
    everything = [(1, "line of 1"), (2, "line of 2")]
    assert (
        by_attempt(call(run_id, "--json", "--attempt", "all", "--follow", *program)) == everything
    )


def test_a_line_is_printed_between_attempts(run_id: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = call(run_id, "--attempt", "all", "--stream", "stdout")
    assert result.stderr == "-- attempt 2 --\n"
    assert capfd.readouterr().out == "workers/0 | line of 1\nworkers/0 | line of 2\n"
    assert call(run_id).stderr == ""


def test_missing_attempts_are_reported(run_id: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"attempt 7 of demo-1 has no output \(attempts with output: 0, 1, 2\)"
    ):
        call(run_id, "--attempt", "7")
    result = call(run_id, "--attempt", "first")
    assert result.exit_code == 2
    assert "'first' is neither a number nor all" in result.stderr


class Choir(Framework):
    """Two services: one with its own output, one that shares the program's."""

    name = "choir"
    summary = "for tests"

    def setup(self, cluster: Cluster) -> Setup:
        alto = Service("alto", ("sh", "-c", "echo alto sings; touch alto; exec sleep 1000"))
        bass = Service(
            "bass", ("sh", "-c", "echo bass sings; touch up; exec sleep 1000"), output="node"
        )
        both = Succeeds(("sh", "-c", "test -e up && test -e alto"))
        role = RoleSetup(services=(alto, bass), gather=both)
        return Setup(roles={role_.name: role for role_ in cluster.roles})


def test_output_of_a_service_is_shown_on_request(
    client: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is kept separate from the output of the program."""
    entry = EntryPoint("choir", f"{__name__}:Choir", registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "_entry_points", lambda: [entry])
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Choir.__module__])
    command = ["echo", "program runs"]
    job, new = client.job(None, command=command, name="song", framework="choir")
    run = client.start(client.prepare_run(job, overrides_from_mapping({}), new_job=new)).wait(60)
    assert run.state == "SUCCEEDED", run.details
    call(run.id, "--stream", "stdout", "--stream", "stderr")
    assert capfd.readouterr().out == "workers/0 | bass sings\nworkers/0 | program runs\n"
    for requested in ("alto", "all"):
        call(run.id, "--service", requested)
        assert capfd.readouterr().out == "workers/0 alto | alto sings\n"
    (record,) = (
        json.loads(line) for line in call(run.id, "--json", "--service", "alto").stdout.splitlines()
    )
    assert (record["message"], record["service"], record["group"]) == (
        "alto sings",
        "alto",
        "workers",
    )
    with pytest.raises(InvalidInput, match=r"song-1 has no service bass \(use alto or all\)"):
        call(run.id, "--service", "bass")


def test_a_run_without_services_is_reported(run_id: str) -> None:
    with pytest.raises(InvalidInput, match=r"has no service all \(no service of the run has"):
        call(run_id, "--service", "all")


@pytest.fixture
def lines(run_id: str, client: Client) -> str:
    """A run with an attempt of ten lines, one a second, of two streams."""
    folder = embedded(client).home.run_dir(run_id).logs(3)
    folder.mkdir()
    streams = [
        StreamInfo(number, name, 0, "workers", "id", 0, stream)
        for number, (name, stream) in enumerate([("0.out", "stdout"), ("0.err", "stderr")])
    ]
    writer = LogWriter(folder, streams)
    for second in range(10):
        name = streams[second % 2].file
        with open(folder / name, "a") as file:
            file.write(f"line {second} of {name}\n")
        writer.note_growth(second * 10**9, [second % 2])
    writer.finish(10 * 10**9)
    writer.close()
    return run_id


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--stderr"], "13579"),
        (["--stderr", "-n", "2"], "79"),
        (["--since", "1970-01-01T00:00:07Z"], "789"),
        (["--since", "1970-01-01T00:00:05Z", "--stderr", "--tail", "2"], "79"),
        (["--grep", "[2-4] of"], "234"),
        (["--grep", "^line [2-5]", "--tail", "3"], "345"),
        (["--grep", "out$", "-n", "0"], ""),
        (["--grep", "nothing"], ""),
        (["--rank", "0-0", "-n3"], "789"),
    ],
)
@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_lines_are_selected_by_time_and_text(
    lines: str,
    options: list[str],
    shown: str,
    follow: list[str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    streams = [] if "--stderr" in options else ["--stream", "stdout", "--stream", "stderr"]
    call(lines, *options, *follow, *streams, "--attempt", "3")
    assert "".join(line.split()[3] for line in capfd.readouterr().out.splitlines()) == shown


def test_lines_have_timestamps_on_request(
    lines: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--attempt", "3", "-n", "1", "--stderr")
    call(lines, *options, "--utc")
    assert capfd.readouterr().out == "1970-01-01T00:00:09.000Z workers/0 ! line 9 of 0.err\n"
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        call(lines, *options, "-t")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert capfd.readouterr().out.startswith("1970-01-01T05:30:09.000+05:30 workers/0 ! ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--grep", "(a"), r"grep: '\(a' is not a regular expression"),
        (
            ("--since", "5.5"),
            r"--since: 5.5 has no unit \(write 5.5s, ",
        ),
        (("--since", "soon"), "--since: 'soon' is neither a duration nor a time"),
        (("--rank", "0,7"), "demo-1 has no rank 7"),
    ],
)
def test_invalid_selections_are_refused(
    run_id: str, options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        call(run_id, *options)
