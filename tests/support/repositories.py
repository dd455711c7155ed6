"""Git repositories to clone from: on the disk, and behind a real server with a password."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.servers import serving

#: An environment without the user's configuration of git.
ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


class Repository:
    """A repository with a work tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        self("init", "-q", "-b", "main")

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=self.path,
            env=ENV,
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def commit(self, **files: str) -> str:
        """Write files (a__py: a.py, sub___a__py: sub/a.py) and commit them. Returns the commit."""
        for name, text in files.items():
            path = self.path / name.replace("___", "/").replace("__", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self("add", "-f", ".")
        self("commit", "-q", "--allow-empty", "-m", "change")
        return self("rev-parse", "HEAD")

    @property
    def url(self) -> str:
        return f"file://{self.path}"


class Served:
    """A server of repositories; `seen` has its requests in order, with their credentials."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen: list[tuple[str, str | None]] = []


@contextmanager
def serve(root: Path, user: str, password: str) -> Iterator[Served]:
    """Serve the repositories below `root` by git's HTTP backend, with a password."""
    expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    backend = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    program = f"{backend.stdout.strip()}/git-http-backend"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization")
            served.seen.append((self.path, given))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if given != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            env = {
                **ENV,
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_USER": user,
            }
            done = subprocess.run([program], input=body, env=env, capture_output=True, check=True)
            head, _, answer = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Served(f"127.0.0.1:{server.server_port}")
    with serving(server):
        yield served
