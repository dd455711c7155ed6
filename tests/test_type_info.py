"""Types are compiled by one thread at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
