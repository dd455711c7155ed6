"""An HTTP server in a thread that receives webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec
from msgspec import Struct


class Received(Struct, frozen=True):
    """A request."""

    path: str
    #: By their names in small letters.
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Reply(Struct, frozen=True):
    """What a receiver answers."""

    status: int = 200
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Receiver:
    """Keeps what it receives, and answers as `answer` says."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        #: Decides the answer to a request.
        self.answer: Callable[[Received], Reply] = lambda _: Reply()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Received(self.path, headers, self.rfile.read(length))
                reply = receiver.answer(request)
                receiver.received.append(request)
                self.send_response(reply.status)
                for name, value in {**reply.headers, "content-length": len(reply.body)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: object) -> None:
                """Nothing on the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        self._thread = Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/hook?key=of-the-receiver"

    def types(self) -> list[str]:
        """The types of the events that it has received (CloudEvents), in their order."""
        return [one.json["type"].removeprefix("muster.") for one in self.received]

    def stop(self) -> None:
        """Listen no more."""
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that answers 200."""
    made = Receiver()
    try:
        yield made
    finally:
        made.stop()
