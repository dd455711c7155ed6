"""An HTTP server that answers as a test says, in the place of an API server."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import yaml

from muster.engines.kubernetes.profile import KubernetesProfile
from support.certificates import TlsFiles


class Request(NamedTuple):
    """What was requested."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    body: Any


class Answer(NamedTuple):
    """What is answered."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = {}
    #: Lines of a stream, which ends after them.
    stream: Iterator[Any] | None = None
    #: The connection is closed without an answer.
    is_lost: bool = False


#: What is answered by an API server that has what is requested.
OBJECT = Answer({"metadata": {"uid": "1"}})


def event(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """A line of a stream."""
    return {"type": kind, "object": dict(item)}


def status(code: int, message: str, **details: Any) -> Answer:
    """An error of the API server."""
    body = {"kind": "Status", "code": code, "message": message, "details": details}
    return Answer(body, code)


class ApiStub:
    """Answers with what `answer` returns; requests are kept. tls: https, for which certificates of
    clients need the same authority. needs_certificate: whether each client needs one."""

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        tls: TlsFiles | None = None,
        *,
        needs_certificate: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                url = urlsplit(self.path)
                body = json.loads(content) if content else None
                query = dict(parse_qsl(url.query))
                headers = self.headers
                if isinstance(self.connection, ssl.SSLSocket):
                    headers["client"] = str(self.connection.getpeercert())
                request = Request(self.command, url.path, query, headers, body)
                stub.requests.append(request)
                self.reply(answer(request))

            def reply(self, found: Answer) -> None:
                if found.is_lost:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send_response(found.status)
                for name, value in found.headers.items():
                    self.send_header(name, value)
                if found.stream is not None:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for one in found.stream:
                        self.send_chunk(one if isinstance(one, bytes) else _line(one))
                    self.send_chunk(b"")
                    return
                content = found.body if isinstance(found.body, bytes) else _line(found.body)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def send_chunk(self, content: bytes) -> None:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
                self.wfile.flush()

            def do_GET(self) -> None:
                self.handle_one()

            def do_POST(self) -> None:
                self.handle_one()

            def do_PATCH(self) -> None:
                self.handle_one()

            def do_CONNECT(self) -> None:
                self.reply(answer(Request("CONNECT", self.path, {}, self.headers, None)))

            def do_DELETE(self) -> None:
                self.handle_one()

            def log_message(self, *_args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_args: object) -> None:
                pass  # the client has closed a stream

        self._server = Server(("127.0.0.1", 0), Handler)
        self._scheme = "http"
        if tls is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tls.authority))
            context.load_cert_chain(tls.cert, tls.key)
            context.verify_mode = ssl.CERT_REQUIRED if needs_certificate else ssl.CERT_OPTIONAL
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def paths(self) -> Sequence[str]:
        """Of all requests, with their methods."""
        return [f"{one.method} {one.path}" for one in self.requests]


def _line(body: Any) -> bytes:
    return json.dumps(body).encode() + b"\n"


def write_config(
    path: Path, url: str, user: Mapping[str, Any] | None = None, **cluster: Any
) -> KubernetesProfile:
    """The profile of an API server, with a file as kubectl has it."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": dict(user or {"token": "secret-1"})}],
    }
    path.write_text(yaml.safe_dump(config))
    return KubernetesProfile(kubeconfig=str(path))
