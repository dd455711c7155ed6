from __future__ import annotations

from pathlib import Path

import pytest

from muster.node import mpi_launchers
from muster.node.mpi_launchers import Died, NoMpi, died_in, find_launcher, hydra_environment

HYDRA = b"""=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 18900 RUNNING AT 127.1.1.2
=   EXIT CODE: 9
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
"""
PRTERUN = b"""prterun noticed that process rank 1 with PID 25 on node node-1 exited on
signal 9 (Killed).
"""


@pytest.mark.parametrize(
    ("said", "died"),
    [
        (HYDRA, Died("127.1.1.2", 18900, 137)),
        (
            HYDRA[: HYDRA.index(b"YOUR APPLICATION T")].replace(b"9\n", b"3\n"),
            Died("127.1.1.2", 18900, 3),
        ),
        (PRTERUN, Died("node-1", 25, 137)),
        (b"PID 18900 RUNNING AT", None),
    ],
)
def test_who_has_ended_the_job(said: bytes, died: Died | None) -> None:
    assert died_in(said) == died


@pytest.mark.parametrize(
    ("device", "netmod"),
    [("ch4:ucx,ofi", "ofi"), ("ch4:ofi,ucx", "ofi"), ("ch4:ucx", None), ("ch4:ofi", None)],
)
def test_ofi_is_chosen_where_there_are_both(
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


def test_a_launcher_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mpiexec"
    program.write_text("#!/bin/sh\nexec /bin/sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mpi_launchers, "_ANSWERS_WITHIN", 0, raising=False)
    with pytest.raises(NoMpi, match="mpiexec --version has not ended after 0 s"):
        find_launcher("auto")


def test_spawned_ranks_are_given_nothing_of_the_main_node() -> None:
    ours = {"NODE_RANK": "0", "MUSTER_TOKEN": "secret", "PATH": "/bin", "HYDRA_IFACE": "lo"}
    assert hydra_environment(ours) == {
        "HYDRA_IFACE": "lo",
        "HYDRA_LAUNCHER_AUTOFORK": "0",
        "PWD": "/proc/self/cwd",
    }
