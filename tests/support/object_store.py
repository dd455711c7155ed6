"""An S3-compatible object store on loopback, which lists objects late, or fails, on request."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from support.servers import POLL_INTERVAL

_KEY = re.compile(rb"<Key>([^<]+)</Key>")
_OBJECT = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_MODIFIED = re.compile(rb"<LastModified>([^<]+)</LastModified>")


class ObjectStore:
    """A store in which a new object is not listed for `late` seconds."""

    def __init__(self, late: float = 0.0) -> None:
        self._late = late
        self._since: dict[bytes, datetime] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._never: list[tuple[str, str]] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(POLL_INTERVAL,), daemon=True).start()

    @property
    def environ(self) -> dict[str, str]:
        """Environment variables for clients."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "FSSPEC_S3_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_port}",
        }

    def refuse(self, method: str, ending: str, times: int) -> None:
        """Fail the next requests for objects whose names have this suffix."""
        self._refused[method, ending] = times

    def refuse_all(self, method: str, path: str) -> None:
        """Refuse requests of this kind for paths with this prefix."""
        self._never.append((method, f"/{path}"))

    @property
    def refusing(self) -> list[tuple[str, str]]:
        """The pending failures."""
        return [request for request, times in self._refused.items() if times > 0]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        for method, ending in self.refusing:
            if environ["REQUEST_METHOD"] == method and environ["PATH_INFO"].endswith(ending):
                self._refused[method, ending] -= 1
                start("403 Forbidden", [("Content-Length", "0")])  # clients do not retry that
                return []
        requested, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if any(requested == method and path.startswith(start_) for method, start_ in self._never):
            start("403 Forbidden", [("Content-Length", "0")])
            return []
        if "list-type" not in environ.get("QUERY_STRING", ""):
            return self._app(environ, start)  # type: ignore[no-any-return]
        response: list[Any] = []
        body = b"".join(self._app(environ, lambda *args: response.extend(args)))
        body = _OBJECT.sub(lambda found: b"" if self._is_new(found[0]) else found[0], body)
        headers = [(k, v) for k, v in response[1] if k.lower() != "content-length"]
        start(response[0], [*headers, ("Content-Length", str(len(body)))])
        return [body]

    def _is_new(self, listed: bytes) -> bool:
        key, modified = _KEY.search(listed), _MODIFIED.search(listed)
        if key is None or modified is None:
            return False
        then = datetime.fromisoformat(modified[1].decode().replace("Z", "+00:00"))
        # an object that is overwritten was listed before
        since = self._since.setdefault(key[1], then)
        return (datetime.now(UTC) - since).total_seconds() < self._late
