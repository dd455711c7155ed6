from __future__ import annotations

from pathlib import Path

import pytest

from muster.node import mpi_launchers
from muster.node.mpi_launchers import (
    FailedRank,
    NoMpi,
    find_failed_rank,
    find_launcher,
    hydra_environment,
)

HYDRA = b"""=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 18900 RUNNING AT 127.1.1.2
=   EXIT CODE: 9
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
PRTERUN = b"""prterun noticed that process rank 1 with PID 25 on node node-1 exited on
signal 9 (Killed).
"""


@pytest.mark.parametrize(
    ("output", "failed"),
    [
        (HYDRA, FailedRank("127.1.1.2", 18900, 137)),
        (
            HYDRA[: HYDRA.index(b"YOUR APPLICATION T")].replace(b"9\n", b"3\n"),
            FailedRank("127.1.1.2", 18900, 3),
        ),
        (PRTERUN, FailedRank("node-1", 25, 137)),
        (b"PID 18900 RUNNING AT", None),
    ],
)
def test_the_rank_that_a_launcher_blames(output: bytes, failed: FailedRank | None) -> None:
    assert find_failed_rank(output) == failed


@pytest.mark.parametrize(
    ("device", "netmod"),
    [("ch4:ucx,ofi", "ofi"), ("ch4:ofi,ucx", "ofi"), ("ch4:ucx", None), ("ch4:ofi", None)],
)
def test_ofi_is_preferred_over_other_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, netmod: str | None
) -> None:
    program = tmp_path / "mpiexec"
    program.write_text(f"#!/bin/sh\necho HYDRA build details: --with-device={device} -O\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    defaults = find_launcher("auto").defaults
    assert defaults.get("MPIR_CVAR_CH4_NETMOD") == netmod
    providers = defaults.get("FI_PROVIDER", "").split(",")
    assert ("tcp;ofi_rxm" in providers) == (netmod == "ofi")
    assert "tcp" not in providers  # MPI_Init hangs with it


def test_a_launcher_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mpiexec"
    program.write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mpi_launchers, "_VERSION_TIMEOUT", 0, raising=False)
    with pytest.raises(NoMpi, match="mpiexec --version has not ended after 0 s"):
        find_launcher("auto")


def test_spawned_ranks_inherit_no_variables_of_the_main_node() -> None:
    ours = {"NODE_RANK": "0", "MUSTER_TOKEN": "secret", "PATH": "/bin", "HYDRA_IFACE": "lo"}
    assert hydra_environment(ours) == {
        "HYDRA_IFACE": "lo",
        "HYDRA_LAUNCHER_AUTOFORK": "0",
        "PWD": "/proc/self/cwd",
    }
