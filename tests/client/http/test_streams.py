"""Logs and events are followed while the server is killed and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from muster.client.client import Client
from muster.client.run import JobRun
from muster.storage.home import Home
from support.command import MUSTER
from support.embedded import variables_of
from support.faults import until
from support.runs import PROGRAM_OUTPUT
from support.server_process import ServerProcess, admin_token

#: Prints numbers until a file exists.
NUMBERS = """
number=0
while [ ! -e "$1" ]; do
    echo $number; number=$((number + 1)); sleep 0.005
done
"""
KILLS = 10


@pytest.fixture
def server(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server that the test's clients and commands use."""
    home = Home(own_home)
    # as root, too, programs run as the user of the test, whom the test's files are readable for
    home.server.write_text("separate_owners = false\n")
    token = admin_token(home)
    with ServerProcess(home) as server:
        for name, text in variables_of(server.address(token)).items():
            monkeypatch.setenv(name, text)
        yield server


def kill_often(server: ServerProcess, seen: Callable[[], int]) -> None:
    """Kill and start the server, each time when more has been seen since the last one."""
    for _ in range(KILLS):
        before = seen()
        until(lambda before=before: seen() > before + 10)  # type: ignore[misc]
        server.stop()
        server.start()
        server.wait_until_ready()


@pytest.mark.slow
def test_a_follower_of_a_run_neither_loses_nor_repeats_anything(
    server: ServerProcess, tmp_path: Path
) -> None:
    client, enough = Client(), tmp_path / "enough"
    job, new = client.job(command=["sh", "-c", NUMBERS, "sh", str(enough)], nodes=2)
    run = client.start(client.prepare_run(job, new_job=new))
    lines: dict[int, list[str]] = {0: [], 1: []}
    events: list[int] = []

    def read_log(run: JobRun) -> None:
        for record in run.logs(follow=True, streams=PROGRAM_OUTPUT):
            lines[record.rank].append(record.message)

    def read_events(run: JobRun) -> None:
        events.extend(event.seq for event in run.events(follow=True))

    followers = [Thread(target=each, args=[run], daemon=True) for each in (read_log, read_events)]
    for follower in followers:
        follower.start()
    kill_often(server, lambda: min(map(len, lines.values())))
    enough.touch()
    assert run.wait(60).state == "SUCCEEDED"
    for follower in followers:
        follower.join(60)
        assert not follower.is_alive()
    for found in lines.values():
        assert found == [str(number) for number in range(len(found))]
    log = run.logs(streams=PROGRAM_OUTPUT)
    assert sum(map(len, lines.values())) == len(list(log))
    assert events == [event.seq for event in run.events()]
    assert events == list(range(1, len(events) + 1))


@pytest.mark.slow
def test_a_run_in_the_foreground_goes_on(server: ServerProcess, tmp_path: Path) -> None:
    enough, out = tmp_path / "enough", tmp_path / "out"
    words = [*MUSTER, "run", "--", "sh", "-c", NUMBERS, "sh", str(enough)]
    with out.open("wb") as file, subprocess.Popen(words, stdout=file) as process:
        kill_often(server, lambda: out.read_bytes().count(b"\n"))
        enough.touch()
        assert process.wait(60) == 0
    numbers = [int(line.removeprefix("workers/0 | ")) for line in out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
