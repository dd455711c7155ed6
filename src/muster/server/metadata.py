"""The metadata service of a host that is registered as an instance (OCI: 169.254.169.254): clients
of OCI on the host find its region and its certificate there."""

from __future__ import annotations

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from msgspec import json

from muster.errors import InvalidInput, Problem

PREFIX = "/opc/v2"
#: OCI: what a client has to send, so that a browser or a proxy cannot be made to ask.
_WORD = "Bearer Oracle"
_FILES = ("cert.pem", "key.pem", "intermediate.pem")


def metadata_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Serves what a folder has that `muster server instance add` has filled, on the loopback
    interface. Files are read at each request. Raises InvalidInput, OSError."""
    missing = [name for name in (*_FILES, "instance.json") if not (folder / name).is_file()]
    if missing:
        hint = "`muster server instance add` on the server's machine makes them"
        raise InvalidInput(Problem(str(folder), f"lacks {', '.join(missing)}", hint))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, content = _answer(folder, self.path, self.headers.get("authorization"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def _answer(folder: Path, path: str, word: str | None) -> tuple[int, str, bytes]:
    """The status, the type and the content of an answer."""
    if word != _WORD:
        return 401, "text/plain", b"the header Authorization is missing\n"
    path = path.removeprefix(PREFIX).rstrip("/")
    if path.startswith("/identity/") and path.removeprefix("/identity/") in _FILES:
        return 200, "text/plain", (folder / path.removeprefix("/identity/")).read_bytes()
    found: Mapping[str, str] = json.decode((folder / "instance.json").read_bytes())
    if path == "/instance":
        return 200, "application/json", json.encode(found)
    name = path.removeprefix("/instance/")
    if path.startswith("/instance/") and name in found:
        return 200, "text/plain", found[name].encode()
    return 404, "text/plain", b"there is no such thing here\n"
