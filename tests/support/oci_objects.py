"""Object Storage in memory, as far as the engine `oci` uses it: for the stand-in of the service."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import unquote

#: The bucket that exists, as in the profile of an engine.
BUCKET = "oci://jobs@team/messages"
_BASE = "/n/team/b/jobs/"
Answer = tuple[int, Any]
_MISSING: Answer = (404, {"code": "BucketNotFound", "message": "no such bucket"})
_NO_OBJECT: Answer = (404, {"code": "ObjectNotFound", "message": "no such object"})


class ObjectStorage:
    """One bucket. A test may change what is here."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, bytes] = {}
        #: Pre-authenticated requests, by their ids, which are their secrets as well.
        self.links: dict[str, dict[str, Any]] = {}
        #: The status with which all requests are refused; 0: they are answered.
        self.refuses = 0
        self.made_links = 0
        self.calls = 0

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer | None:
        """The status and the content, JSON or bytes; None if the path is of another service."""
        with self.lock:
            if path.startswith("/p/"):
                _, _, secret, rest = path.split("/", 3)
                return self._refused() or self._by_link(method, secret, f"/{rest}", body)
            if path.startswith("/n/"):
                return self._refused() or self._signed(method, path, query, body)
            return None

    def _refused(self) -> Answer | None:
        self.calls += 1
        code = {"code": "NotAuthorizedOrNotFound", "message": "not now"}
        return (self.refuses, code) if self.refuses else None

    def _by_link(self, method: str, secret: str, path: str, body: bytes) -> Answer:
        link, name = self.links.get(secret), unquote(path.removeprefix(f"{_BASE}o/"))
        if link is None or not name.startswith(link["objectName"]) or method == "DELETE":
            return _NO_OBJECT
        return self._object(method, name, body)

    def _signed(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer:
        if not path.startswith(_BASE):
            return _MISSING
        kind, _, rest = path.removeprefix(_BASE).partition("/")
        if kind == "p":
            return self._link(method, rest, query, body)
        return self._object(method, unquote(rest), body) if rest else self._list(query)

    def _object(self, method: str, name: str, body: bytes) -> Answer:
        if method == "PUT":
            self.objects[name] = body
            return 200, b""
        if name not in self.objects:
            return _NO_OBJECT
        return (200, self.objects[name]) if method == "GET" else (204, self.objects.pop(name)[:0])

    def _list(self, query: dict[str, str]) -> Answer:
        prefix, start = query.get("prefix", ""), query.get("start", "")
        found = sorted(name for name in self.objects if name.startswith(prefix) and name >= start)
        limit = int(query.get("limit", 1000))
        following = {"nextStartWith": found[limit]} if len(found) > limit else {}
        return 200, {"objects": [{"name": name} for name in found[:limit]], **following}

    def _link(self, method: str, rest: str, query: dict[str, str], body: bytes) -> Answer:
        if method == "POST":
            self.made_links += 1
            secret = f"secret{self.made_links}"
            self.links[secret] = {**json.loads(body), "id": secret}
            return 200, {**self.links[secret], "accessUri": f"/p/{secret}{_BASE}o/"}
        if method == "DELETE":
            return (204, b"") if self.links.pop(rest, None) else _NO_OBJECT
        prefix = query.get("objectNamePrefix", "")
        return 200, [one for one in self.links.values() if one["objectName"].startswith(prefix)]
