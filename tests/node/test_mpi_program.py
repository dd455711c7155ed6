"""Which rank of an MPI program is said to have failed first."""

from __future__ import annotations

from typing import Any

import pytest

from muster.node import mpi_program, remote_command
from muster.node.mpi_launchers import Launcher
from muster.node.mpi_program import Program
from muster.node.mpi_ranks import LOST


def blamed(pid: int, host: str, code: int) -> bytes:
    """What MPICH's launcher prints."""
    return (
        b"=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        b"=   PID %d RUNNING AT %s\n=   EXIT CODE: %d\n" % (pid, host.encode(), code)
    )


A_SHELL = "the shell around rank 3, on node-1, was killed"
A_PROCESS = "a rank on node-0 (process 7 there) ended with 9"


@pytest.mark.parametrize(
    ("exits", "output", "code", "text"),
    [
        ([(2, 143), (3, 3)], b"", 3, "rank 3, on node-1, ended with 3"),
        ([(3, 3), (2, 4)], b"", 3, "rank 3, on node-1, ended with 3"),
        ([(0, 143), (3, LOST)], b"", 137, A_SHELL),
        # the launcher knows better why shells were killed
        ([(3, LOST)], blamed(7, "127.0.0.1", 9), 9, A_PROCESS),
        ([(3, 3)], blamed(7, "127.0.0.1", 9), 3, "rank 3, on node-1, ended with 3"),
        # a rank that MPICH ends since it cannot reach another one
        ([(0, 15), (3, LOST)], b"", 137, A_SHELL),
        ([(3, LOST), (0, 15)], blamed(7, "127.0.0.1", 15), 137, A_SHELL),
        ([(0, 15)], blamed(7, "127.0.0.1", 15), 15, "rank 0, on node-0, ended with 15"),
    ],
)
def test_the_rank_that_failed_first(
    exits: list[tuple[int, int]],
    output: bytes,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mpi_program, "SETTLE", 0.0)
    failed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(remote_command, "shut_down_relay", lambda *given, **_: failed.append(given))
    program = Program(
        Launcher("mpich", "/usr/bin/mpiexec", 0),
        ["true"],
        per_node=2,
        slots=2,
        timeout=1.0,
        relays=[("127.0.0.1", 1), ("127.0.0.2", 2)],
        token="",
    )
    program._hosts = ["127.0.0.1", "127.0.0.2"]
    program._output = output
    for rank, ended in exits:
        program._record_exits([(rank, ended)])
    assert program._exit_code(None) == code
    assert capsys.readouterr().err == f"muster mpi: {text}\n"
    assert len(failed) == text.count("node-1")
