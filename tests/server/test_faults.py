"""What a server says of what it cannot work with, and that nothing is lost by it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.client.http.api import HttpAPI
from muster.service.embedded import EmbeddedAPI
from muster.storage.certificates import make_supervisor_certificate
from muster.storage.home import Home
from support.api_runs import end_all, start, wait
from support.command import MUSTER
from support.disks import on_a_disk
from support.faults import until
from support.owners import open_home
from support.postgres import PostgresServer
from support.server_process import ServerProcess, admin_token
from support.teams import ask


@pytest.fixture
def home() -> Iterator[Home]:
    with open_home() as made:
        yield made


@pytest.fixture
def token(home: Home) -> str:
    return admin_token(home)


@pytest.fixture
def server(home: Home, token: str) -> Iterator[ServerProcess]:
    with ServerProcess(home) as made:
        yield made
    api = EmbeddedAPI(home)
    if home.root.exists():
        end_all(api)
    api.close()


def refused(home: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the message of a server that does not start."""
    environ = {**os.environ, "MUSTER_HOME": str(home)}
    argv = [*MUSTER, "server", *arguments]
    done = subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_a_port_in_use(home: Home) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        code, text = refused(home.root, "--port", str(port))
    assert code == 4
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in text
    assert "choose another one with --port" in text
    assert not home.database.exists(), "nothing was written"


def test_files_that_are_not_a_certificate_and_its_key(home: Home) -> None:
    folder = home.root.parent
    pair, other = folder / "pair", folder / "other"
    for one in (pair, other):
        make_supervisor_certificate(one, "server")
    absent = folder / "absent.pem"
    for cert, key, expected in (
        (absent, pair / "key.pem", f"--tls-cert: cannot read {absent}: No such file"),
        (pair / "cert.pem", absent, f"--tls-key: cannot read {absent}: No such file"),
        (pair / "cert.pem", other / "key.pem", "a certificate and its key: key values mismatch"),
        (pair / "key.pem", pair / "key.pem", "are not a certificate and its key"),
    ):
        code, text = refused(
            home.root, "--port", "18436", "--tls-cert", str(cert), "--tls-key", str(key)
        )
        assert code == 2
        assert expected in text
        code, text = refused(
            home.root, "--port", "18436", "--tls-cert", str(cert), "--tls-key", str(key), "doctor"
        )
        assert (code, text) == (1, ""), "the doctor finds it, too"
    assert not home.database.exists(), "no administrator was made, whose token nobody would see"


@pytest.mark.slow
def test_a_database_that_is_away_at_the_start(home: Home) -> None:
    url = "postgresql+psycopg://nobody@127.0.0.1:1/nothing"
    code, text = refused(home.root, "--port", "18435", "--database-url", url)
    assert code != 0
    assert "cannot reach the PostgreSQL database" in text


def test_a_database_of_a_newer_version(home: Home, token: str) -> None:
    import sqlite3

    with closing(sqlite3.connect(home.database)) as database:
        database.execute("PRAGMA user_version = 9999")
        database.commit()
    code, text = refused(home.root, "--port", "18432")
    assert code != 0
    assert "was written by a newer Muster (schema 9999, this one knows " in text


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    code, text = refused(file / "home", "--port", "18433")
    assert code != 0
    assert str(file) in text


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_and_runs_continue_when_it_is_stopped(
    home: Home, token: str, server: ServerProcess, how: signal.Signals
) -> None:
    api = HttpAPI(server.address(token))
    run = start(api, "echo begun; sleep 600")
    until(lambda: all(node.state == "READY" for node in api.nodes(run.id)), "it is ready", 60)
    with closing(socket.create_connection(("127.0.0.1", server.port))) as follower:
        follower.sendall(
            f"GET /v1/runs/{run.id}/log?follow=true HTTP/1.1\r\nHost: muster\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        received = b""
        while b"LogChunk" not in received:
            received += follower.recv(1 << 16)
        assert server.stop(how) == 0
        while part := follower.recv(1 << 16):
            received += part
    assert b'"type":"End"' not in received, "a log that goes on has no end"
    assert "the server has stopped; runs continue" in server.log.read_text()
    api.close()
    here = EmbeddedAPI(home)
    assert here.find_run(run.id).state == "IN_PROGRESS"
    here.close()


def test_an_upload_is_continued_after_a_restart(
    home: Home, token: str, server: ServerProcess
) -> None:
    import hashlib

    data = os.urandom(500_000)
    digest = hashlib.sha256(data).hexdigest()
    path = f"/v1/uploads/{digest}"
    with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
        head = f"PUT {path} HTTP/1.1\r\nHost: m\r\nContent-Length: {len(data)}\r\n"
        connection.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + data[:300_000])
        until(lambda: ask(server.port, "GET", path, token).json["size"] > 0, "some is there", 30)
        server.stop(signal.SIGKILL)
    server.start()
    server.wait_until_ready()
    size = ask(server.port, "GET", path, token).json["size"]
    assert 0 < size <= 300_000
    rest = ask(server.port, "PUT", f"{path}?offset={size}", token, data[size:])
    assert rest.json == {"size": len(data)}
    assert ask(server.port, "POST", path, token, {"file_name": "data.py"}).status == 201


def test_two_servers_of_one_home(home: Home, token: str, server: ServerProcess) -> None:
    """Each sees at once what the other one has recorded."""
    with ServerProcess(home) as other:
        one, two = (HttpAPI(each.address(token)) for each in (server, other))
        run = start(one, "true")
        assert wait(two, run.id) == "SUCCEEDED"
        held = start(two, "sleep 600")
        assert one.find_run("last").id == held.id
        one.cancel(held.id)
        assert wait(two, held.id) == "CANCELED"
        one.close()
        two.close()


def test_a_home_that_is_gone(home: Home, token: str, server: ServerProcess) -> None:
    home.root.rename(home.root.with_name("moved"))
    try:
        ready = ask(server.port, "GET", "/readyz")
        assert ready.status == 503
        assert str(home.root) in ready.json["detail"]
        spec = {"name": "lost", "command": ["true"]}
        body = {"run": {"source": {"type": "spec", "spec": spec}}}
        reply = ask(server.port, "POST", "/v1/runs", token, body)
        assert (reply.status, reply.problem) == (500, "HomeGone")
        assert not home.root.exists()
        assert ask(server.port, "GET", "/healthz").status == 200
    finally:
        home.root.with_name("moved").rename(home.root)
    until(lambda: ask(server.port, "GET", "/v1/runs", token).status == 200, "it is back", 60)


def test_a_database_that_is_away_for_a_while(home: Home) -> None:
    database = PostgresServer()
    try:
        home.prepare()
        home.database_url.write_text(f"{database.url(database.create())}\n")
        home.database_url.chmod(0o600)
        token = admin_token(home)
        with ServerProcess(home) as server:
            assert ask(server.port, "GET", "/v1/runs", token).status == 200
            database.stop(signal.SIGQUIT)
            reply = ask(server.port, "GET", "/v1/runs", token)
            assert (reply.status, reply.problem) == (503, "StoreBusy")
            assert "PostgreSQL" in reply.json["detail"]
            assert ask(server.port, "GET", "/readyz").status == 503
            assert ask(server.port, "GET", "/healthz").status == 200
            database.start()
            assert ask(server.port, "GET", "/v1/runs", token).status == 200
            assert server.stop(signal.SIGTERM) == 0
        lines = [line for line in server.log.read_text().splitlines() if line.startswith("{")]
        assert not [line for line in lines if "traceback" in json.loads(line)], lines
    finally:
        database.remove()


FULL = """
free='import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
port=$("$PYTHON" -c "$free")
"$PYTHON" -m muster server --port "$port" > "$1/log" 2>&1 &
server=$!
for i in $(seq 1200); do grep -q "^muster_" "$1/log" && break; sleep 0.1; done
token=$(grep "^muster_" "$1/log")
call() { "$PYTHON" - "$port" "$token" "$@" <<'PROGRAM'
import http.client, sys
port, token, verb, path, size = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port))
body = b"x" * int(size)
connection.request(verb, path, body or None, {"Authorization": f"Bearer {token}"})
answer = connection.getresponse()
print(answer.status, answer.read().decode()[:600])
PROGRAM
}
fill
call PUT "/v1/uploads/$(printf '0%.0s' $(seq 64))" 3000000
call GET /v1/runs 0
call GET /v1/caller 0
rm "$DISK/ballast"
call PUT "/v1/uploads/$(printf '1%.0s' $(seq 64))" 3000000
kill $server
wait $server
echo "ended $?"
"""


def test_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    refused, listed, caller, after, ended = on_a_disk(folder, "size=40m", FULL)
    assert refused.startswith("503 "), refused
    assert "No space left on device (free some space)" in refused
    assert "muster:ResourceShortage" in refused
    assert listed == "200 []"
    assert caller.startswith("200 ")
    assert after == '200 {"size":3000000}'
    assert ended == "ended 0"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_a_home_that_has_become_read_only(home: Home, token: str) -> None:
    with ServerProcess(home) as server:
        assert ask(server.port, "GET", "/readyz").status == 200
        subprocess.run(["mount", "--bind", home.root, home.root], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", home.root], check=True)
            ready = ask(server.port, "GET", "/readyz")
            assert (ready.status, ready.json["status"]) == (503, "home")
            assert ready.json["detail"] == f"{home.root} is on a file system that is read-only"
            assert ask(server.port, "GET", "/v1/runs", token).status == 200
            body = {"run": {"source": {"type": "spec", "spec": {"command": ["true"]}}}}
            reply = ask(server.port, "POST", "/v1/runs", token, body)
            assert reply.status >= 500 and "Read-only file system" in reply.json["detail"], reply
        finally:
            subprocess.run(["umount", home.root], check=True)
        assert ask(server.port, "GET", "/readyz").status == 200
        assert ask(server.port, "POST", "/v1/runs", token, body).status == 201
    assert "internal error" not in server.log.read_text()


def test_warnings_are_lines_of_the_log(home: Home, token: str) -> None:
    code = (
        "import sys, warnings; from muster.server import command\n"
        "from muster.server.settings import Settings\n"
        "def run(self, listener): warnings.warn('with\\ntwo lines')\n"
        "command.Server.run = run\n"
        "command.serve(Settings(port=0), None, lambda _: None, lambda _: None)\n"
    )
    environ = {**os.environ, "MUSTER_HOME": str(home.root)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True
    )
    (line,) = done.stderr.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["message"]) == ("warning", "with\ntwo lines")
