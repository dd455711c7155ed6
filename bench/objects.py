"""Object storage of the server, beside a copy of the file: `python bench/objects.py [MIB]`.

Needs curl, and the package oci for the rows of its SDK. What is put is on the disk when the server
answers: its floor is a copy that is flushed, that of GET is `cp`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import oci
from common import compare, fresh_home, timed

from muster.service.backend import Backend
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from server import muster_server

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from support.oci_config import add_key

ROUNDS = 3


def transfers(size: int) -> None:
    """PUT and GET of an object. size: in MiB."""
    with fresh_home() as home, muster_server(home) as served, TemporaryDirectory() as name:
        folder = Path(name)
        source, target = folder / "source", folder / "target"
        with open(source, "wb") as file:
            for _ in range(size):
                file.write(os.urandom(1 << 20))
        client = _client(home, folder, served.port)
        details = oci.object_storage.models.CreateBucketDetails(
            name="bench", compartment_id=TENANCY
        )
        client.create_bucket("muster", details)
        link = oci.object_storage.models.CreatePreauthenticatedRequestDetails(
            name="bench",
            access_type="AnyObjectReadWrite",
            time_expires=datetime.now(UTC) + timedelta(days=1),
        )
        made = client.create_preauthenticated_request("muster", "bench", link).data
        url = f"http://127.0.0.1:{served.port}{made.access_uri}object"
        curl = ["curl", "-sf", "-H", "Expect:"]
        upload = oci.object_storage.UploadManager(client).upload_file
        compare(
            f"PUT of {size} MiB (1.0 is a copy that is flushed)",
            {
                "copy, flushed": timed(
                    ["dd", f"if={source}", f"of={target}", "bs=1M", "conv=fsync", "status=none"]
                ),
                "cp": timed(["cp", str(source), str(target)]),
                "curl": timed([*curl, "-T", str(source), url]),
                "SDK, in parts": _timed(lambda: upload("muster", "bench", "parts", str(source))),
            },
            rounds=ROUNDS,
        )
        compare(
            f"GET of {size} MiB (1.0 is cp)",
            {
                "cp": timed(["cp", str(source), str(target)]),
                "curl": timed([*curl, "-o", str(target), url]),
                "curl, nothing written": timed([*curl, "-o", "/dev/null", url]),
            },
            rounds=ROUNDS,
        )
        subprocess.run(["cmp", str(source), str(target)], check=True)


def _client(home: Path, folder: Path, port: int) -> Any:
    with closing(Backend(Home(home))) as backend:
        (user,) = [user.name for user in backend.store.accounts.users() if user.admin]
        config = add_key(backend.store, user, folder)
    url = f"http://127.0.0.1:{port}"
    return oci.object_storage.ObjectStorageClient(config, service_endpoint=url)


def _timed(call: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return measure


if __name__ == "__main__":
    transfers(int(sys.argv[1]) if len(sys.argv) > 1 else 1024)
