"""Waiting and reading in an event loop of asyncio."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import muster
from muster.client.client import Client
from muster.node.file_watch import Watcher
from muster.service import loop_watcher
from muster.service.event_loop import in_thread, wait_for_readable
from support.embedded import embedded, over_http
from support.faults import until
from support.runs import PROGRAM_OUTPUT, supervisor_pid

#: Prints a line, and ends when its working directory has a file "go".
UNTIL_GO = "echo waiting; while [ ! -e go ]; do sleep 0.005; done; echo going; exit 3"


def start(client: Client, script: str) -> muster.JobRun:
    job, new = client.job(None, command=["sh", "-c", script])
    return client.start(client.prepare_run(job, new_job=new))


def let_go(client: Client, run: muster.JobRun) -> None:
    (embedded(client).home.run_dir(run.id).work(0) / "go").touch()


@pytest.fixture(params=["inotify", "polling"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "polling":
        monkeypatch.setattr(loop_watcher, "Watcher", Watcher.polling)


def open_files() -> int:
    """How many descriptors this process has, without those of inotify, of the database and of
    connections to a server, which are used again."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    files = [os.readlink(link) for link in links if link.is_symlink()]
    kept = ("inotify", "muster.db", "socket:")
    return sum(not any(map(file.count, kept)) for file in files)


@pytest.mark.usefixtures("watcher")
def test_runs_are_followed_and_awaited_at_the_same_time(client: Client) -> None:
    async def main() -> None:
        runs = [start(client, UNTIL_GO) for _ in range(3)]
        descriptors = open_files()

        async def lines(run: muster.JobRun) -> list[str]:
            found = []
            async for record in run.logs_async(follow=True, streams=PROGRAM_OUTPUT):
                found.append(record.message)
                if record.message == "waiting":
                    let_go(client, run)
            return found

        async def states(run: muster.JobRun) -> list[str]:
            events = run.events_async(follow=True)
            return [event.data["state"] async for event in events if event.kind == "run"]

        logs = asyncio.gather(*map(lines, runs))
        events = asyncio.gather(*map(states, runs))
        ended = await asyncio.gather(*(run.wait_async(60) for run in runs))
        assert ended == runs and {run.state for run in runs} == {"FAILED"}
        assert await logs == [["waiting", "going"]] * 3
        assert [found[-1] for found in await events] == ["FAILED"] * 3
        assert open_files() == descriptors

    asyncio.run(main())


def test_what_is_present_is_read_without_following(client: Client) -> None:
    async def main() -> None:
        run = await start(client, "seq 3").wait_async()
        records = [r async for r in run.logs_async(streams=PROGRAM_OUTPUT, tail=2)]
        assert [record.message for record in records] == ["2", "3"]
        assert [e async for e in run.events_async(after=2)] == list(run.events(after=2))
        with pytest.raises(muster.InvalidInput, match="has no rank 7"):
            run.logs_async(ranks=[7])

    asyncio.run(main())


def client_threads() -> int:
    """How many threads there are, without those of a server in this process, which starts them as
    it needs them, and of `asyncio.to_thread` here."""
    others = ("request", "files", "keys", "asyncio")
    return sum(not one.name.startswith(others) for one in threading.enumerate())


def test_a_canceled_task_leaves_the_run_alone_and_nothing_open(client: Client) -> None:
    async def main() -> None:
        run = start(client, UNTIL_GO)
        await anext(aiter(run.logs_async(follow=True, streams=PROGRAM_OUTPUT)))
        with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s"):
            await run.wait_async(0.01)
        descriptors, threads = open_files(), client_threads()
        for waiting in (run.wait_async(), drain(run)):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await waiting
        if over_http():  # the server notices a moment later
            await asyncio.to_thread(until, lambda: open_files() == descriptors)
        assert open_files() == descriptors
        assert client_threads() <= threads
        assert run.refresh().state == "IN_PROGRESS"
        let_go(client, run)
        assert (await run.wait_async(60)).exit_code == 3

    async def drain(run: muster.JobRun) -> None:
        async for _ in run.logs_async(follow=True):
            pass

    asyncio.run(main())


def test_waiting_takes_no_processor_time_and_other_tasks_continue(client: Client) -> None:
    async def main() -> None:
        run = start(client, UNTIL_GO)
        await anext(aiter(run.logs_async(follow=True, streams=PROGRAM_OUTPUT)))
        waiting = asyncio.ensure_future(run.wait_async(60))
        before = time.thread_time()
        for _ in range(10):
            await asyncio.sleep(0.03)
        assert time.thread_time() - before < 0.1
        let_go(client, run)
        assert (await waiting).done

    asyncio.run(main())


def test_a_run_whose_supervisor_is_killed_is_recovered(client: Client) -> None:
    async def main() -> None:
        run = start(client, "echo up; sleep 1000")
        await anext(aiter(run.logs_async(follow=True, streams=PROGRAM_OUTPUT)))
        followed = asyncio.ensure_future(kinds(run))
        waiting = asyncio.ensure_future(run.wait_async(60))
        await asyncio.sleep(0)
        os.kill(supervisor_pid(client, run), signal.SIGKILL)
        assert (await waiting).state == "FAILED"
        assert "supervisor_lost" in await followed

    async def kinds(run: muster.JobRun) -> list[str]:
        return [event.kind async for event in run.events_async(follow=True)]

    asyncio.run(main())


def test_a_cancellation_waits_for_a_call_in_a_thread() -> None:
    async def main() -> None:
        begun, release, done = threading.Event(), threading.Event(), threading.Event()

        def call() -> None:
            begun.set()
            release.wait(60)
            done.set()
            raise ValueError("of a call that nobody waits for any more")

        task = asyncio.ensure_future(in_thread(call))
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        assert await asyncio.wait({task}, timeout=0.05) == (set(), {task})
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    asyncio.run(main())


def test_descriptors_that_are_readable_or_hang_up(tmp_path: Path) -> None:
    async def main() -> None:
        (reading, writing), (other, kept) = os.pipe(), os.pipe()
        try:
            assert await wait_for_readable([reading, other], 0.01) == set()
            os.close(writing)
            assert await wait_for_readable([reading, other], None) == {reading}
        finally:
            for descriptor in (reading, other, kept):
                os.close(descriptor)

    asyncio.run(main())
