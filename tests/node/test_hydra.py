from __future__ import annotations

import os
import subprocess
from pathlib import Path

from muster.node.hydra import Launches, abort_in


def test_each_proxy_is_asked_for_with_its_host(tmp_path: Path) -> None:
    """And its agent stays until it is released."""
    launches = Launches(str(tmp_path))
    try:
        words = [
            launches.agent,
            "127.1.1.2",
            '"/opt/my mpi/bin/hydra_pmi_proxy"',
            "--proxy-id",
            "0",
        ]
        with subprocess.Popen(words) as agent:
            asked = _read(launches)
            ((host, text),) = asked
            assert host == "127.1.1.2"
            assert text.startswith('exec "/opt/my mpi/bin/hydra_pmi_proxy" --proxy-id 0 >>')
            assert agent.poll() is None
            launches.release()
        assert agent.returncode == 0
    finally:
        launches.close()


def _read(launches: Launches) -> list[tuple[str, str]]:
    os.set_blocking(launches.fileno(), True)
    return launches.read()


def test_who_has_called_mpi_abort() -> None:
    words = "ValueError: x\nAbort(7) on node 3 (rank 3 in comm 0): application called MPI_Abort"
    assert abort_in(words) == (3, 7)
    assert abort_in("Abortion") is None
