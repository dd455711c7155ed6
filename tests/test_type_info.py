"""Types are compiled by one thread at a time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from muster.api.logins import LoginRequest
from muster.type_info import decode_json, is_deeper

#: Threads of a new process decode a value of many types for the first time.
PROGRAM = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import msgspec
from muster.api.prepared import PreparedJob
from muster.type_info import decode_json
sys.setswitchinterval(1e-5)
barrier = threading.Barrier(12)
def decode(_):
    barrier.wait()
    try:
        decode_json(b'{"record": {}, "spec": {}, "new": true}', PreparedJob)
    except msgspec.ValidationError:
        return 1
with ThreadPoolExecutor(12) as pool:
    print(sum(pool.map(decode, range(12))))
"""


@pytest.mark.parametrize("_", range(3))
def test_threads_decode_a_type_for_the_first_time(_: int) -> None:
    argv = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "12\n"), done.stderr


@pytest.mark.parametrize("kind", [Any, dict[str, Any], LoginRequest])
@pytest.mark.parametrize("depth", [3_000, 300_000])
def test_json_that_is_nested_too_deep_is_no_json(kind: Any, depth: int) -> None:
    for text in (b'{"a":' * depth + b"1" + b"}" * depth, b'{"a":' + b"[" * depth):
        with pytest.raises(msgspec.DecodeError):
            decode_json(text, kind)


@pytest.mark.parametrize(
    ("value", "depth"), [(1, 0), ({}, 1), ([1, {"a": "b"}], 2), ({"a": 1, "b": [[2], 3]}, 3)]
)
def test_how_deep_a_value_is(value: Any, depth: int) -> None:
    assert not is_deeper(value, depth)
    assert depth == 0 or is_deeper(value, depth - 1)
