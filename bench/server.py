"""The server: `python bench/server.py [NAME ...]`, where NAME is a function of this file.

Requests are made by `wrk` on the same machine. The floors are an ASGI application that answers with
a constant under the same uvicorn, and one of FastAPI that inserts a row into SQLite. dstack and
SkyPilot are measured if the environments DSTACK and SKYPILOT have them:
`pip install "dstack[server]"` and `pip install skypilot` (in an environment of its own each).
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from common import MUSTER, fresh_home, timed

from cli import fill

sys.path.append(str(Path(__file__).parent.parent / "tests"))

SECONDS = 2  # of each measurement by wrk
ROUNDS = 3
FLOOR = """
import sys, uvicorn
BODY = b'{"status":"ok","text":"' + b"x" * 200 + b'"}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await send({"type": "http.response.body", "body": BODY})
"""
FASTAPI = """
import sqlite3, sys, uvicorn
from fastapi import FastAPI
app = FastAPI()
db = sqlite3.connect(sys.argv[2], isolation_level=None, check_same_thread=False)
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE t (x)")

@app.post("/")
def insert(item: dict):
    db.execute("INSERT INTO t VALUES (?)", (item["name"],))
    return item
"""
RUN_IT = """
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", log_level="critical")
"""


def free_port() -> int:
    with closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def memory(process: psutil.Process) -> float:
    """Megabytes of a process and its children: pages that they share count once (PSS)."""
    total = 0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += each.memory_full_info().pss
    return total / 1e6


class Served:
    """A process that serves HTTP on this machine."""

    def __init__(self, argv: Sequence[str], port: int, path: str = "/") -> None:
        """path: what it answers as soon as it is ready."""
        self.port, self.token = port, ""
        self.folder = tempfile.TemporaryDirectory()
        self._output = Path(self.folder.name) / "output"
        began = time.perf_counter()
        with self._output.open("wb") as file:
            self.process = subprocess.Popen(
                argv, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        while not self._answers(path):
            if self.process.poll() is not None or time.perf_counter() > began + 120:
                raise SystemExit(f"{argv[0]} has not started: {self.output[-2000:]}")
            time.sleep(0.002)
        #: Until the first answer.
        self.seconds = time.perf_counter() - began
        self.ps = psutil.Process(self.process.pid)

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def _answers(self, path: str) -> bool:
        try:
            return self.get(path)[0] < 500
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str, verb: str = "GET", body: Any = None) -> tuple[int, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as client:
            client.request(verb, path, None if body is None else json.dumps(body), self.headers)
            answer = client.getresponse()
            return answer.status, answer.read()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


@contextmanager
def muster_server(home: Path, *words: str) -> Iterator[Served]:
    """A server of a new MUSTER_HOME, without a limit of requests."""
    settings = "requests_per_second = 1e6\nburst = 1000000\nseparate_owners = false\n"
    (home / "server.toml").write_text(settings)
    port = free_port()
    served = Served([MUSTER, "server", "--port", str(port), *words], port, "/healthz")
    try:
        if found := re.search(r"\bmuster_\w+", served.output):
            served.token = found[0]
        yield served
    finally:
        served.stop()


@contextmanager
def floor(code: str, *words: str) -> Iterator[Served]:
    port = free_port()
    served = Served([sys.executable, "-c", code + RUN_IT, str(port), *words], port)
    try:
        yield served
    finally:
        served.stop()


def wrk(
    served: Served, path: str, body: Any = None, connections: int = 16, seconds: float = SECONDS
) -> tuple[float, float, float]:
    """Requests per second, the 99th percentile of their milliseconds, and the microseconds of CPU
    that each takes in the server, which depend less on the load of the machine."""
    script = Path(served.folder.name) / "wrk.lua"
    lines = [f'wrk.headers["{name}"] = "{text}"' for name, text in served.headers.items()]
    if body is not None:
        lines += ['wrk.method = "POST"', f"wrk.body = {json.dumps(json.dumps(body))}"]
        lines += ['wrk.headers["Content-Type"] = "application/json"']
    lines += [
        "function done(summary, latency)",
        "io.write(string.format('RESULT %d %f %f %d\\n', summary.requests,",
        "summary.duration / 1e6, latency:percentile(99) / 1e3, summary.errors.status)) end",
    ]
    script.write_text("\n".join(lines))
    url = f"http://127.0.0.1:{served.port}{path}"
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), url]
    before = sum(served.ps.cpu_times()[:2])
    done = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    used = sum(served.ps.cpu_times()[:2]) - before
    found = re.search(r"RESULT (\d+) (\S+) (\S+) (\d+)", done)
    assert found is not None, done
    if int(found[4]):
        verb = "GET" if body is None else "POST"
        raise SystemExit(f"{path}: {found[4]} errors, such as {served.get(path, verb, body)}")
    count = int(found[1])
    return count / float(found[2]), float(found[3]), used / count * 1e6


def rates(title: str, entrants: Mapping[str, Callable[[], tuple[float, float, float]]]) -> None:
    """Measure in turns; print medians, and the medians of their ratios to the first one."""
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in entrants}
    for _ in range(ROUNDS):
        for name, measure in entrants.items():
            taken[name].append(measure())
    first = next(iter(taken.values()))
    load = os.getloadavg()[0]
    print(
        f"\n{title} (load {load:.1f})\n"
        f"{'':44} {'a second':>9} {'p99':>9} {'x floor':>8} {'CPU each':>9} {'x floor':>8}"
    )
    for name, found in taken.items():
        ratio = statistics.median(a[0] / b[0] for a, b in zip(found, first, strict=True))
        work = statistics.median(b[2] / a[2] for a, b in zip(found, first, strict=True))
        rate, tail, each = (statistics.median(one[i] for one in found) for i in (0, 1, 2))
        print(
            f"{name:44} {rate:9,.0f} {tail:7.1f}ms {ratio:8.2f} {each:7.0f}us {work:8.2f}",
            flush=True,
        )


def start() -> None:
    """From the command to the first answer, and memory a second later."""
    print(f"\nstart (load {os.getloadavg()[0]:.1f})\n{'':30} {'seconds':>8} {'MB (PSS)':>9}")

    def show(name: str, found: list[tuple[float, float]]) -> None:
        seconds, size = (statistics.median(one[i] for one in found) for i in (0, 1))
        print(f"{name:30} {seconds:8.2f} {size:9.0f}", flush=True)

    def measure(served: Served, wait: float = 1.0) -> tuple[float, float]:
        time.sleep(wait)
        return served.seconds, memory(served.ps)

    found: dict[str, list[tuple[float, float]]] = {"ASGI": [], "first": [], "next": []}
    for _ in range(5):
        with floor(FLOOR) as served:
            found["ASGI"].append(measure(served))
        with fresh_home() as home:
            for kind in ("first", "next"):
                with muster_server(home) as served:
                    found[kind].append(measure(served))
    show("floor: ASGI application", found["ASGI"])
    show("muster server, new MUSTER_HOME", found["first"])
    show("muster server", found["next"])
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DSTACK_SERVER_DIR": folder, "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
        for name, (argv, port, path) in _peers().items():
            peer = Served(argv, port, path)
            try:
                show(name, [measure(peer, 10.0)])
            finally:
                with suppress(ProcessLookupError):  # those that have left their parent, too
                    os.killpg(peer.process.pid, signal.SIGTERM)
                peer.stop()


def _peers() -> dict[str, tuple[list[str], int, str]]:
    found = {}
    if (environment := os.environ.get("DSTACK")) is not None:
        port = free_port()
        argv = [f"{environment}/bin/dstack", "server", "--port", str(port), "-y"]
        found["dstack server"] = (argv, port, "/healthcheck")
    if (environment := os.environ.get("SKYPILOT")) is not None:
        port = free_port()
        argv = [f"{environment}/bin/python", "-m", "sky.server.server", "--port", str(port)]
        found["SkyPilot API server"] = (argv, port, "/api/health")
    return found


def reads() -> None:
    """Short reads, beside an application that answers with a constant."""
    with fresh_home() as home, floor(FLOOR) as bare:
        fill(home, 1000)
        with muster_server(home) as served:
            paths = {
                "/healthz": "",
                "/v1/caller": "",
                "/v1/runs/true-500": "a run",
                "/v1/runs/true-500/summary": "the summary of a run",
                "/v1/runs/r000000500/events/last": "the number of its events",
                "/v1/runs?limit=20": "20 runs",
                "/v1/runs?limit=200": "200 runs",
            }
            entrants = {"floor: ASGI application": lambda: wrk(bare, "/")}
            for path, name in paths.items():
                entrants[f"{path} {name and '('}{name}{name and ')'}"[:44]] = _of(served, path)
            rates("reads, 16 at once", entrants)


def _of(served: Served, path: str, body: Any = None) -> Callable[[], tuple[float, float, float]]:
    return lambda: wrk(served, path, body)


def _request(**overrides: Any) -> dict[str, Any]:
    spec = {"name": "bench", "command": ["true"], "node_groups": [{"name": "workers"}]}
    source = {"type": "spec", "spec": spec}
    return {"run": {"source": source, "overrides": overrides}}


def accepted() -> None:
    """POST /v1/runs of runs that are only recorded, in SQLite and in PostgreSQL."""
    from support.postgres import PostgresServer

    postgres = PostgresServer(fsync=True)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            floor(FASTAPI, f"{folder}/floor.db") as bare,
            fresh_home() as home,
            muster_server(home) as sqlite,
            fresh_home() as other,
            postgres.database() as url,
            muster_server(other, "--database-url", url) as in_postgres,
        ):
            body = _request(suspend=True)
            rates(
                "runs accepted (suspended), 16 at once",
                {
                    "floor: FastAPI, one INSERT": _of(bare, "/", {"name": "x"}),
                    "POST /v1/runs, SQLite": _of(sqlite, "/v1/runs", body),
                    "POST /v1/runs, PostgreSQL": _of(in_postgres, "/v1/runs", body),
                },
            )
    finally:
        postgres.remove()


def runs() -> None:
    """200 runs of `true` through the server's local engine, from 8 clients, until all ended."""
    with fresh_home() as home, muster_server(home) as served:
        for number in range(ROUNDS + 1):
            began = time.perf_counter()
            _start_many(served, 200)
            accepted = time.perf_counter() - began
            while _live(served):
                time.sleep(0.01)
            took = time.perf_counter() - began
            if number:
                print(
                    f"200 runs of `true`: accepted {200 / accepted:.0f}/s, ended {200 / took:.0f}/s"
                    f" (load {os.getloadavg()[0]:.1f})",
                    flush=True,
                )


def _start_many(served: Served, count: int, **spec: Any) -> None:
    """From 8 clients at once."""
    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(_start_runs, served, count // 8, **spec) for _ in range(8)]:
            each.result()


def _start_runs(served: Served, count: int, **spec: Any) -> None:
    body = _request()
    body["run"]["source"]["spec"] |= spec
    text = json.dumps(body)
    with closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)) as client:
        for _ in range(count):
            client.request("POST", "/v1/runs", text, served.headers)
            answer = client.getresponse()
            data = answer.read()
            assert answer.status == 201, data


def _live(served: Served) -> list[dict[str, Any]]:
    states = "&".join(f"states={state}" for state in ("ACCEPTED", "IN_PROGRESS", "QUEUED"))
    status, data = served.get(f"/v1/runs?{states}&limit=5000")
    assert status == 200, data
    found: list[dict[str, Any]] = json.loads(data)
    return found


def live() -> None:
    """1,000 live runs: the memory of the server, and of all processes."""
    with fresh_home() as home, muster_server(home) as served:
        before = memory(served.ps)
        began = time.perf_counter()
        _start_many(served, 1000, command=["sleep", "600"])
        took = time.perf_counter() - began
        running = _live(served)
        time.sleep(2)
        own = served.ps.memory_full_info().pss / 1e6
        print(f"\n{len(running)} live runs, accepted at {1000 / took:.0f}/s")
        print(f"the server: {own:.0f} MB (PSS); idle it was {before:.0f} MB", flush=True)
        rate, tail, _ = wrk(served, "/v1/runs?limit=20")
        print(f"lists of 20 runs meanwhile: {rate:,.0f}/s, p99 {tail:.1f} ms", flush=True)
        for run in running:
            served.get(f"/v1/runs/{run['id']}/cancel", "POST", {})
        while _live(served):
            time.sleep(0.1)


WRITER = """
import sys, time
while True:
    print(f"{time.time():.6f}", flush=True)
    time.sleep(float(sys.argv[1]))
"""


def followers() -> None:
    """1,000 followers of one run, and of 100 runs: how long a line takes to all of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for count, interval in ((1, 1.0), (100, 5.0)):
        with fresh_home() as home, muster_server(home) as served:
            argv = [sys.executable, "-c", WRITER, str(interval)]
            _start_runs(served, count, command=argv)
            while len(names := [r["id"] for r in _live(served) if r["started_at"]]) < count:
                time.sleep(0.1)
            before = served.ps.memory_full_info().pss / 1e6
            paths = [f"/v1/runs/{names[i % count]}/log?follow=true&tail=0" for i in range(1000)]
            used = served.ps.cpu_times()
            began = time.perf_counter()
            late, open_after = asyncio.run(_follow(served, paths, 15.0))
            seconds = time.perf_counter() - began
            after = served.ps.cpu_times()
            share = (after.user + after.system - used.user - used.system) / seconds
            late.sort()
            print(
                f"\n1,000 followers of {count} runs, open after {open_after:.1f} s: {len(late):,} "
                f"lines, median {late[len(late) // 2] * 1000:.0f} ms, p99 "
                f"{late[int(len(late) * 0.99)] * 1000:.0f} ms, last {late[-1] * 1000:.0f} ms after "
                f"it was written; {share:.0%} of a core; server {before:.0f} -> {_peak_now:.0f} MB "
                f"(load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
            for name in names:
                served.get(f"/v1/runs/{name}/cancel", "POST", {})
            while _live(served):
                time.sleep(0.1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_peak_now = 0.0


async def _follow(served: Served, paths: list[str], seconds: float) -> tuple[list[float], float]:
    """How late lines arrived that were written after all streams were open."""
    global _peak_now  # noqa: PLW0603
    late: list[tuple[float, float]] = []
    opened = 0

    async def one(path: str) -> None:
        nonlocal opened
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = "".join(f"{name}: {text}\r\n" for name, text in served.headers.items())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\n{head}\r\n".encode())
        status = await reader.readline()
        assert b" 200 " in status, status
        opened += 1
        while True:
            line = await reader.readline()
            now = time.time()
            if line.startswith(b'{"type":"LogChunk"'):
                import base64

                text = base64.b64decode(json.loads(line)["data"])
                for each in text.split():
                    with suppress(ValueError):
                        late.append((float(each), now))
            elif line.startswith(b'{"type":"Error"') or not line:
                raise AssertionError(line)

    began = time.perf_counter()
    tasks = [asyncio.ensure_future(one(path)) for path in paths]
    while opened < len(paths):
        await asyncio.sleep(0.01)
        for task in tasks:
            if task.done():
                task.result()
    opening = time.perf_counter() - began
    all_open = time.time()
    await asyncio.sleep(seconds)
    _peak_now = served.ps.memory_full_info().pss / 1e6
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [now - written for written, now in late if written > all_open], opening


def loaded() -> None:
    """Latencies of 100 requests a second with 100,000 runs and 10 million log lines in MUSTER_HOME,
    while others read whole logs, list runs and start them."""
    with fresh_home() as home:
        fill(home, 100_000)
        with muster_server(home) as served:
            code = "for i in range(1_000_000): print('step', i, 'loss', 0.123456)"
            _start_runs(served, 10, command=[sys.executable, "-c", code])
            while _live(served):
                time.sleep(0.5)
            _, data = served.get("/v1/runs?limit=10")
            names = [run["id"] for run in json.loads(data)]
            paths = [
                *("/v1/runs?limit=20", "/v1/runs/true-500", f"/v1/runs/{names[0]}/nodes"),
                *(f"/v1/runs/{names[0]}/events", f"/v1/runs/{names[1]}/log?tail=100"),
                *("/v1/runs?limit=20&states=SUCCEEDED", "/v1/runs/last", "/v1/jobs"),
            ]
            quiet = _latencies(served, paths)
            with _other_requests(served, names[2]):
                busy = _latencies(served, paths)
            print(f"\n100,000 runs, 10 million log lines (load {os.getloadavg()[0]:.1f})")
            print(f"{'milliseconds':40} {'quiet p50':>9} {'p99':>7} {'busy p50':>9} {'p99':>7}")
            for path in [*paths, "all"]:
                row = [*_percentiles(quiet, path), *_percentiles(busy, path)]
                name = re.sub(r"/[0-9a-z]{10}/", "/ID/", path)
                print(f"{name:40} {row[0]:9.1f} {row[1]:7.1f} {row[2]:9.1f} {row[3]:7.1f}")
            sys.stdout.flush()


@contextmanager
def _other_requests(served: Served, run: str) -> Iterator[None]:
    """Programs that, one after another, read a whole log, list 1,000 runs, and start runs."""
    body = json.dumps(_request(suspend=True))
    commands = {
        f"/v1/runs/{run}/log": "",
        "/v1/runs?limit=1000": "sleep 0.2",
        "/v1/runs": f"sleep 0.05; set -- -d '{body}'",
    }
    token = served.headers["Authorization"]
    started = []
    for path, between in commands.items():
        url = f"http://127.0.0.1:{served.port}{path}"
        once = f"curl -sf -o /dev/null -H 'Authorization: {token}' \"$@\" '{url}'"
        script = f"while {between or ':'}; {once}; do :; done"
        started.append(subprocess.Popen(["sh", "-c", script], start_new_session=True))
    try:
        yield
        assert all(each.poll() is None for each in started), "a request failed"
    finally:
        for each in started:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def _latencies(served: Served, paths: Sequence[str]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    clients = [http.client.HTTPConnection("127.0.0.1", served.port, timeout=60) for _ in range(2)]
    began = time.perf_counter()
    for number in range(1500):  # at fixed times, however long others take
        due = began + number / 100
        time.sleep(max(0.0, due - time.perf_counter()))
        path, client = paths[number % len(paths)], clients[number % 2]
        client.request("GET", path, headers=served.headers)
        answer = client.getresponse()
        data = answer.read()
        assert answer.status == 200, data
        found.append((path, time.perf_counter() - due))
    for client in clients:
        client.close()
    return found


def _percentiles(found: list[tuple[str, float]], path: str) -> tuple[float, float]:
    chosen = sorted(ms * 1000 for p, ms in found if path in (p, "all"))
    return chosen[len(chosen) // 2], chosen[int(len(chosen) * 0.99)]


def commands() -> None:
    """Commands over HTTP, beside the same in this MUSTER_HOME."""
    with fresh_home() as home:
        fill(home, 1000)
        timed([MUSTER, "run", "--name", "hello", "--", "sh", "-c", "seq 1000"])()
        with muster_server(home) as served:
            remote = {"MUSTER_URL": f"http://127.0.0.1:{served.port}", "MUSTER_TOKEN": served.token}
            print(f"\n{'commands':20} {'here':>8} {'HTTP':>8} {'ratio':>7}")
            for words in (["ps"], ["ps", "-a"], ["status", "hello-1"], ["logs", "hello-1"]):
                pairs = []
                for _ in range(11):
                    here = timed([MUSTER, *words])()
                    os.environ |= remote
                    there = timed([MUSTER, *words])()
                    for name in remote:
                        del os.environ[name]
                    pairs.append((here, there))
                here, there = (statistics.median(p[i] for p in pairs) * 1000 for i in (0, 1))
                ratio = statistics.median(b / a for a, b in pairs)
                name = " ".join(words)
                print(f"{name:20} {here:6.0f}ms {there:6.0f}ms {ratio:7.2f}", flush=True)


ALL = (start, reads, accepted, runs, live, followers, loaded, commands)
if __name__ == "__main__":
    chosen = sys.argv[1:] or [each.__name__ for each in ALL]
    for each in ALL:
        if each.__name__ in chosen:
            each()
