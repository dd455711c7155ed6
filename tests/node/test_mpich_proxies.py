from __future__ import annotations

import os
import subprocess
from pathlib import Path

from muster.node.mpich_proxies import ProxyRequests, find_abort


def test_each_proxy_is_requested_with_its_host(tmp_path: Path) -> None:
    """Its rsh waits until it is released."""
    requests = ProxyRequests(str(tmp_path))
    try:
        output = [
            requests.rsh,
            "127.1.1.2",
            '"/opt/my mpi/bin/hydra_pmi_proxy"',
            "--proxy-id",
            "0",
        ]
        with subprocess.Popen(output) as rsh:
            ((host, text),) = _read(requests)
            assert host == "127.1.1.2"
            assert text.startswith('exec "/opt/my mpi/bin/hydra_pmi_proxy" --proxy-id 0 >>')
            assert rsh.poll() is None
            requests.release()
        assert rsh.returncode == 0
    finally:
        requests.close()


def _read(requests: ProxyRequests) -> list[tuple[str, str]]:
    os.set_blocking(requests.fileno(), True)
    return requests.read()


def test_the_rank_that_called_mpi_abort_is_found() -> None:
    output = "ValueError: x\nAbort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort"
    assert find_abort(output) == (3, 7)
    assert find_abort("Abortion") is None
