"""A client of the load test: sends requests until its time is over, each one until it is answered.

Arguments: the seed, the seconds, the token, and the addresses of the servers. Prints what was
accepted, a JSON object in each line.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import sys
import time
from contextlib import closing
from itertools import pairwise
from typing import Any

import msgspec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

SEED, SECONDS, TOKEN, *PORTS = sys.argv[1:]
RNG = random.Random(SEED)
#: Programs, the number of restarts, and how runs of them end.
PROGRAMS = {
    "short": ("true", 50, "SUCCEEDED"),
    "failing": ("exit 3", 0, "FAILED"),
    "printing": ("for i in 1 2 3 4 5; do echo line $i; sleep 0.2; done", 50, "SUCCEEDED"),
    "long": ("echo begun; sleep 600", 50, ""),
}
#: What tells that a server did not do anything now: it may be asked again.
BUSY = (429, 500, 502, 503)
LOST = (OSError, http.client.HTTPException, WebSocketException)


class Refused(Exception):  # noqa: N818
    """The server has answered with an error."""


def note(kind: str, **data: Any) -> None:
    print(json.dumps({"kind": kind, **data}), flush=True)


def request(verb: str, path: str, body: Any = None, **headers: str) -> Any:
    """The answer to a request, which is sent until it is answered."""
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline, f"{verb} {path} is not answered"
        connection = http.client.HTTPConnection("127.0.0.1", int(RNG.choice(PORTS)), timeout=20)
        try:
            with closing(connection):
                connection.request(verb, f"/v1{path}", data, {**given, **AUTH})
                answer = connection.getresponse()
                content = answer.read()
        except LOST:
            time.sleep(0.05)
            continue
        if answer.status in BUSY:
            if answer.status != 503:
                note("busy", status=answer.status, path=path, text=content[:500].decode())
            time.sleep(0.05)
            continue
        if answer.status >= 400:
            raise Refused(f"{verb} {path}: {answer.status} {content[:500].decode()}")
        return json.loads(content) if content else None


AUTH = {"Authorization": f"Bearer {TOKEN}"}


def submit(number: int) -> None:
    kind = RNG.choice([*PROGRAMS, "long"])
    command, restarts, ends = PROGRAMS[kind]
    spec = {
        "name": f"{kind}-{SEED}",
        "command": ["sh", "-c", command],
        "failure": {"max_restarts": restarts},
    }
    key = f"{SEED}-{number}"
    body = {"run": {"source": {"type": "spec", "spec": spec}}}
    run = request("POST", "/runs", body, Idempotency_Key=key)
    note("run", id=run["id"], key=key, ends=ends)
    if RNG.random() < 0.2:
        again = request("POST", "/runs", body, Idempotency_Key=key)
        assert again["id"] == run["id"], (again, run)
    if kind == "long":
        change(run["id"])
    elif RNG.random() < 0.3:
        RNG.choice([follow_log, follow_events])(run["id"])


def change(run: str) -> None:
    """Cancel a run, or suspend and resume it before."""
    for _ in range(RNG.choice((0, 1, 10))):
        if enter(run):
            break
        time.sleep(0.2)
    if RNG.random() < 0.5:
        request("POST", f"/runs/{run}/suspend", {})
        wait(run, "SUSPENDED")
        try:
            request("POST", f"/runs/{run}/resume", {"overrides": None})
        except Refused as error:  # the first answer was lost, and the second request came too late
            if "not SUSPENDED" not in str(error):
                raise
    request("POST", f"/runs/{run}/cancel", {"why": "enough"})
    note("canceled", id=run)


def wait(run: str, state: str) -> None:
    deadline = time.monotonic() + 120
    while (found := request("GET", f"/runs/{run}/summary"))["state"] != state:
        assert time.monotonic() < deadline, found
        assert found["state"] not in ("FAILED", "CANCELED"), found
        time.sleep(0.1)


def stream(path: str, headers: dict[str, str]) -> list[bytes]:
    """The lines of a stream, as far as it goes."""
    connection = http.client.HTTPConnection("127.0.0.1", int(RNG.choice(PORTS)), timeout=30)
    lines: list[bytes] = []
    with closing(connection):
        try:
            connection.request("GET", f"/v1{path}", headers={**AUTH, **headers})
            answer = connection.getresponse()
            if answer.status == 200:
                lines.extend(line.strip() for line in answer)
        except LOST:
            pass
    return lines


def follow_log(run: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline, "the log has no end"
        lines = [line for line in stream(f"/runs/{run}/log?follow=true", {}) if line]
        if lines and json.loads(lines[-1])["type"] == "End":
            note("followed", id=run, lines=len(lines))
            return
        time.sleep(0.05)


def follow_events(run: str) -> None:
    """Read the events to their end, from where the last stream was cut off."""
    numbers: list[int] = []
    deadline = time.monotonic() + 120
    while True:
        assert time.monotonic() < deadline, "the events have no end"
        last = {"Last-Event-ID": str(numbers[-1])} if numbers else {}
        lines = stream(f"/runs/{run}/events/stream", last)
        # an entry whose data was cut off was not received
        for number, data in pairwise(lines):
            if number.startswith(b"id: ") and data.endswith(b"}"):
                numbers.append(int(number[4:]))
        assert numbers == [*range(1, len(numbers) + 1)], numbers
        if b"event: end" in lines:
            note("events", id=run, number=len(numbers))
            return
        time.sleep(0.05)


def enter(run: str) -> bool:
    """Run a command in the node. False if it cannot be reached now."""
    url = f"ws://127.0.0.1:{RNG.choice(PORTS)}/v1/runs/{run}/nodes/0/exec"
    try:
        with connect(url, additional_headers=AUTH, proxy=None, open_timeout=10) as socket:
            socket.send(msgspec.json.encode({"type": "Command", "argv": ["echo", "hi"]}).decode())
            messages = [*socket]
    except (*LOST, TimeoutError):
        return False
    output = b"".join(
        each[1:] for each in messages if isinstance(each, bytes) and each[:1] == b"\1"
    )
    ended = [json.loads(each) for each in messages if isinstance(each, str)]
    if not ended or ended[-1]["type"] != "Ended" or ended[-1].get("error"):
        return False
    # the node may end meanwhile: 126 if it cannot be entered any more, else by a signal
    code = ended[-1].get("code", 0)
    assert code in (0, 126) or code >= 128, messages
    if code == 0:
        assert output == b"hi\n", messages
        note("exec", id=run)
    return code == 0


def upload(number: int) -> None:
    data = f"print({number}, '{SEED}')\n".encode() + b"#" * RNG.choice((0, 1000, 300_000))
    digest = hashlib.sha256(data).hexdigest()
    while True:
        try:
            offset = request("GET", f"/uploads/{digest}")["size"]
            if offset < len(data):
                end = RNG.randrange(offset, len(data)) + 1
                request("PUT", f"/uploads/{digest}?offset={offset}", data[offset:end])
                continue
            code = request("POST", f"/uploads/{digest}", {"file_name": "a.py"})
            break
        except Refused as error:
            # the answer to the last request was lost: what it has stored is there
            if _has(digest):
                code = {"sha256": digest}
                break
            assert "409" in str(error), error
    note("code", sha256=code["sha256"])


def _has(digest: str) -> bool:
    try:
        request("GET", f"/code/{digest}")
    except Refused:
        return False
    return True


def main() -> None:
    end = time.monotonic() + float(SECONDS)
    number = 0
    while time.monotonic() < end:
        number += 1
        RNG.choices([submit, upload], [4, 1])[0](number)
    note("end", requests=number)


if __name__ == "__main__":
    main()
