"""A stand-in for the Data Science service, whose faults and delays a test chooses.

It answers the calls that the engine makes, without checking their signatures, and runs artifacts as
processes of this machine. What Muster's own server answers is tested with that server.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from email.utils import formatdate
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from muster.engines.profiles import file_of, write_profile
from muster.storage.home import Home
from support.oci_config import config_of, write_config
from support.oci_objects import ObjectStorage
from support.servers import POLL_INTERVAL

needs_sdk = pytest.mark.skipif(
    find_spec("oci") is None and not os.environ.get("REQUIRE_PROGRAMS"),
    reason="the extra `oci` is not installed",
)
COMPARTMENT = "ocid1.compartment.oc1..team"
PROJECT = "ocid1.datascienceproject.oc1..jobs"
_OVER = ("SUCCEEDED", "FAILED", "CANCELED", "DELETED")
_BASE = "/20190101"
Record = dict[str, Any]


class Refused(Exception):  # noqa: N818
    """An answer with an error."""

    def __init__(self, status: int, code: str, message: str = "no") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class OciService:
    """What the service has. A test may change what is here, with `lock` held where it matters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        self.jobs: dict[str, Record] = {}
        self.runs: dict[str, Record] = {}
        self.artifacts: dict[str, tuple[str, bytes]] = {}
        #: Called before a call is answered, with its name: raises Refused.
        self.before: Callable[[str], object] = lambda _operation: None
        #: The names of calls, in order.
        self.calls: list[str] = []
        #: Whether job runs wait (ACCEPTED) until `start`.
        self.holds = False
        #: Whether the last node group has the first ranks.
        self.last_group_first = False
        #: Its object storage.
        self.storage = ObjectStorage()
        self.shapes = ["VM.Standard.E4.Flex", "VM.GPU.A10.1"]
        #: Retry token -> what it has created.
        self._tokens: dict[str, Record] = {}
        #: Those of clients.
        self.connections: set[socket.socket] = set()
        self._processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.url = ""

    # --- what a test does to it

    @contextlib.contextmanager
    def serving(self) -> Iterator[OciService]:
        """Answer until the block ends."""
        self.open()
        try:
            yield self
        finally:
            self.close()

    def open(self) -> None:
        """Answer until `close`."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        # a daemon, as the one of a process ends after its other threads
        threading.Thread(
            target=self._server.serve_forever, args=(POLL_INTERVAL,), daemon=True
        ).start()

    def close(self) -> None:
        """Answer no more. Nothing is left of its runs."""
        self._server.shutdown()
        self._server.server_close()
        for run in [*self._processes]:
            self._signal(run, signal.SIGKILL)

    def drop_connections(self) -> None:
        """Close the connections of clients."""
        for one in [*self.connections]:
            one.shutdown(socket.SHUT_RDWR)

    def write_config(self) -> Path:
        """Write a file with credentials for it."""
        path = self.folder / "config"
        names = {"user": "ocid1.user.oc1..ana", "tenancy": "ocid1.tenancy.oc1..us"}
        write_config(path, config_of("ana") | names)
        return path

    def profile(self, **settings: Any) -> str:
        """The profile of an engine that uses it."""
        values = {
            "compartment": COMPARTMENT,
            "project": PROJECT,
            "endpoint": self.url,
            "config": str(self.write_config()),
            "folder": str(self.folder / "nodes"),
            **settings,
        }
        return 'kind = "oci"\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())

    def only_run(self) -> Record:
        """The only job run."""
        [run] = self.runs.values()
        return run

    def processes(self, run: Record) -> list[int]:
        """The pids of the artifacts of a job run, by rank."""
        return [process.pid for process in self._processes[run["id"]]]

    def start(self, run: Record) -> None:
        """Provide the machines of a job run that waits."""
        with self.lock:
            if run["lifecycleState"] != "ACCEPTED":
                return
            run["lifecycleState"] = "IN_PROGRESS"
            job = self.jobs[run["jobId"]]
            nodes = _nodes(job)
            if self.last_group_first:  # no order of groups is promised
                names = [*dict.fromkeys(group for _, group in nodes)][::-1]
                groups = sorted((group for _, group in nodes), key=names.index)
                nodes = [*enumerate(groups)]
            self._list(run, nodes)
            processes = [self._spawn(run, job, rank, group) for rank, group in nodes]
            self._processes[run["id"]] = processes
        threading.Thread(target=self._wait, args=(run, processes), daemon=True).start()

    def end(self, run: Record, state: str, details: str, signal_: int = signal.SIGKILL) -> None:
        """End a job run by itself."""
        with self.lock:
            run["lifecycleState"], run["lifecycleDetails"] = state, details
        self._signal(run["id"], signal_)

    def _signal(self, run: str, number: int) -> None:
        for process in self._processes.get(run, ()):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                continue
            if number == signal.SIGKILL:
                process.wait(30)

    # --- nodes

    def _list(self, run: Record, nodes: list[tuple[int, str]]) -> None:
        """Write the file in which nodes find each other."""
        place = self.folder / "machines" / run["id"]
        place.mkdir(parents=True)
        listed = [
            {"Rank": str(rank), "NodeGroupName": group, "IpAddress": "127.0.0.1"}
            for rank, group in nodes
        ]
        (place / "nodes.json").write_text(json.dumps(listed))

    def _spawn(self, run: Record, job: Record, rank: int, group: str) -> subprocess.Popen[bytes]:
        name, content = self.artifacts[job["id"]]
        place = self.folder / "machines" / run["id"] / str(rank)
        place.mkdir(parents=True)
        (place / name).write_bytes(content)
        with zipfile.ZipFile(place / name) as archive:
            archive.extractall(place / "code")
        environ = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(place),
            "LANG": "C.UTF-8",
            "JOB_RUN_OCID": run["id"],
            "NODE_RANK": str(rank),
            "NODE_GROUP_NAME": group,
            "CLUSTER_NODES_METADATA_FILE": str(place.parent / "nodes.json"),
        }
        with open(place / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "__main__.py"],
                cwd=place / "code",
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _wait(self, run: Record, processes: list[subprocess.Popen[bytes]]) -> None:
        codes = [process.wait() for process in processes]
        with self.lock:
            if run["lifecycleState"] in _OVER:
                return
            if run["lifecycleState"] == "CANCELING":
                run["lifecycleState"] = "CANCELED"
            elif any(codes):
                code = next(filter(None, codes))
                run["lifecycleState"] = "FAILED"
                text = f"Job run artifact execution failed with exit code {code}."
                run["lifecycleDetails"] = text
            else:
                run["lifecycleState"] = "SUCCEEDED"

    # --- calls

    def create_job(self, body: Any, query: Record, headers: Any) -> Record:
        return self._create("datasciencejob", self.jobs, body, "ACTIVE", headers)

    def create_job_run(self, body: Any, query: Record, headers: Any) -> Record:
        _existing(self.jobs, body["jobId"])
        run = self._create("datasciencejobrun", self.runs, body, "ACCEPTED", headers)
        if not self.holds:
            self.start(run)
        return run

    def _create(
        self, kind: str, place: dict[str, Record], body: Any, state: str, headers: Any
    ) -> Record:
        token = headers.get("opc-retry-token", "")
        with self.lock:
            if token not in self._tokens:
                made = {
                    **body,
                    "id": f"ocid1.{kind}.oc1..{len(place):060d}",
                    "timeCreated": "2026-01-01T00:00:00Z",
                    "timeAccepted": "2026-01-01T00:00:00Z",
                    "lifecycleState": state,
                }
                place[made["id"]] = self._tokens[token] = made
            return self._tokens[token]

    def create_job_artifact(self, body: bytes, query: Record, headers: Any) -> None:
        job = query["id"]
        if job in self.artifacts:
            raise Refused(409, "Conflict", "there is an artifact")
        name = headers["content-disposition"].partition("filename=")[2]
        self.artifacts[_existing(self.jobs, job)["id"]] = (name, body)

    def list_jobs(self, body: Any, query: Record, headers: Any) -> list[Record]:
        return _listed(self.jobs, query)

    def list_job_runs(self, body: Any, query: Record, headers: Any) -> list[Record]:
        return _listed(self.runs, query)

    def get_job_run(self, body: Any, query: Record, headers: Any) -> Record:
        return _existing(self.runs, query["id"])

    def cancel_job_run(self, body: Any, query: Record, headers: Any) -> None:
        run = _existing(self.runs, query["id"])
        with self.lock:
            if run["lifecycleState"] in _OVER:
                raise Refused(409, "Conflict", f"it is {run['lifecycleState']}")
            waits = run["lifecycleState"] == "ACCEPTED"
            run["lifecycleState"] = "CANCELED" if waits else "CANCELING"
        self._signal(run["id"], signal.SIGTERM)

    def delete_job(self, body: Any, query: Record, headers: Any) -> None:
        job = _existing(self.jobs, query["id"])
        own = [run for run in self.runs.values() if run["jobId"] == job["id"]]
        if any(run["lifecycleState"] not in _OVER for run in own):
            raise Refused(409, "Conflict", "it has runs")
        for one in (job, *own):
            one["lifecycleState"] = "DELETED"

    def get_project(self, body: Any, query: Record, headers: Any) -> Record:
        if query["id"] != PROJECT:
            raise Refused(404, "NotAuthorizedOrNotFound", "no project")
        return {"id": PROJECT, "displayName": "jobs", "lifecycleState": "ACTIVE"}

    def list_job_shapes(self, body: Any, query: Record, headers: Any) -> list[Record]:
        return [
            {"name": name, "coreCount": 4, "memoryInGBs": 64, "shapeSeries": "AMD_ROME"}
            for name in self.shapes
        ]

    def get_log_group(self, body: Any, query: Record, headers: Any) -> Record:
        return {"id": query["id"], "displayName": "logs"}


@cache
def shared_service() -> OciService:
    """One for all tests of this process, which ends with it."""
    folder = Path(tempfile.mkdtemp(prefix="oci-"))
    service = OciService(folder)
    service.open()

    def end() -> None:
        service.close()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return service


def require_sdk() -> None:
    """Skip the test where the SDK is not installed, unless it has to be."""
    if find_spec("oci") is None:
        assert not os.environ.get("REQUIRE_PROGRAMS"), "the extra `oci` is not installed"
        pytest.skip("the extra `oci` is not installed")


def add_engine(home: Path, service: OciService, name: str = "oci", **settings: Any) -> None:
    """Write the profile of an engine. Its nodes have their files in `HOME/oci`."""
    values = {"folder": str(home / "oci"), **settings}
    write_profile(file_of(Home(home), name), service.profile(**values))


def _nodes(job: Record) -> list[tuple[int, str]]:
    """The rank and the group of each node."""
    multi = job.get("jobNodeConfigurationDetails")
    if multi is None:
        return [(0, "")]
    groups = multi["jobNodeGroupConfigurationDetailsList"]
    names = [group["name"] for group in groups for _ in range(group["replicas"])]
    return list(enumerate(names))


def _existing(place: dict[str, Record], ocid: str) -> Record:
    if ocid not in place or place[ocid]["lifecycleState"] == "DELETED":
        raise Refused(404, "NotAuthorizedOrNotFound", "it does not exist, or is not yours")
    return place[ocid]


def _listed(place: dict[str, Record], query: Record) -> list[Record]:
    if query["compartmentId"] != COMPARTMENT:
        raise Refused(404, "NotAuthorizedOrNotFound", "no compartment")
    wanted = {key: query[key] for key in _FILTERS if key in query}
    return [one for one in place.values() if all(one.get(key) == wanted[key] for key in wanted)]


_FILTERS = ("displayName", "lifecycleState", "jobId", "id")
_ROUTES = {
    ("POST", "jobs"): "create_job",
    ("GET", "jobs"): "list_jobs",
    ("DELETE", "jobs/"): "delete_job",
    ("POST", "jobs/artifact"): "create_job_artifact",
    ("POST", "jobRuns"): "create_job_run",
    ("GET", "jobRuns"): "list_job_runs",
    ("GET", "jobRuns/"): "get_job_run",
    ("POST", "jobRuns/actions/cancelJobRun"): "cancel_job_run",
    ("GET", "projects/"): "get_project",
    ("GET", "jobShapes"): "list_job_shapes",
    ("GET", "logGroups/"): "get_log_group",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, service: OciService, *words: Any) -> None:
        self.service = service
        super().__init__(*words)

    def handle(self) -> None:
        self.service.connections.add(self.connection)
        with contextlib.suppress(ConnectionError):  # a client that has ended
            super().handle()
        self.service.connections.discard(self.connection)

    def log_message(self, *_words: Any) -> None:
        """Nobody reads it."""

    def _answer(self) -> None:
        where = urlsplit(self.path)
        size = int(self.headers.get("content-length") or 0)
        sent = self.rfile.read(size)
        query = {key: values[0] for key, values in parse_qs(where.query).items()}
        answer = self.service.storage.answer(self.command, where.path, query, sent)
        if answer is not None:
            self._send(*answer)
            return
        kind, *rest = where.path.strip("/").split("/")[1:]
        if rest:
            query["id"] = rest[0]
        place = "/".join([kind, *(rest[1:] if len(rest) > 1 else [""] if rest else [])])
        name = _ROUTES.get((self.command, place))
        try:
            assert name is not None, f"{self.command} {where.path}"
            self.service.calls.append(name)
            self.service.before(name)
            is_json = name != "create_job_artifact" and sent
            body = json.loads(sent) if is_json else sent
            found = getattr(self.service, name)(body, query, self.headers)
            self._send(200 if found is not None else 204, found)
        except Refused as error:
            self._send(error.status, {"code": error.code, "message": str(error)})

    def _send(self, status: int, found: Any) -> None:
        is_file = isinstance(found, bytes)
        content = found if is_file else b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        kind = "application/octet-stream" if is_file else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.send_header("date", formatdate(time.time(), usegmt=True))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815
