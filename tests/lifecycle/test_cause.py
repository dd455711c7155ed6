"""Which of several failures came first."""

from __future__ import annotations

import pytest

from muster.lifecycle.cause import consequences, echo, first
from muster.lifecycle.status import Failure, Reason


def failed(
    rank: int = 0,
    message: str = "",
    *,
    reason: Reason = Reason.EXIT,
    signal: int = 0,
    at: float = 0.0,
    raised_at: float | None = None,
) -> Failure:
    return Failure(rank, "g0", reason, 1, signal, message, at, raised_at=raised_at)


@pytest.mark.parametrize(
    "message",
    [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:525] Read error [127.0.0.1]:1: "
        "Connection reset by peer",
        "Connection closed by remote peer",
        "connect: Connection refused",
        "The connection was lost",
        "write: Broken pipe",
        "BrokenPipeError: [Errno 32]",
        "ConnectionRefusedError",
        "EOFError",
        "torch.distributed.DistBackendError: NCCL error: ncclRemoteError",
        "ncclSystemError: System call failed",
        "remote process has terminated",
        "a remote process exited",
        "peer closed",
        "the peer has disconnected",
        "No route to host",
        "Socket Timeout",
        "socket closed",
        "torch.distributed.DistStoreError: StoreTimeout",
        "heartbeat monitor timed out",
        "Traceback\n  File x\nEOFError",
        "EOFError\n\n",
    ],
)
def test_a_broken_connection_looks_like_a_consequence(message: str) -> None:
    assert echo(failed(message=message))


@pytest.mark.parametrize(
    "message",
    [
        "",
        "ValueError: boom",
        "ConnectionResetError, caught\nValueError: boom",
        "cannot disconnect the pipe",
        "connection established",
    ],
)
def test_other_last_words_do_not(message: str) -> None:
    assert not echo(failed(message=message))


@pytest.mark.parametrize(
    ("reason", "signal", "expected"),
    [
        (Reason.EXIT, 0, False),
        (Reason.EXIT, 13, True),
        (Reason.EXIT, 15, True),
        (Reason.EXIT, 9, False),
        (Reason.EXIT, 11, False),
        (Reason.DEADLINE, 15, False),
        (Reason.HANG, 0, True),
        (Reason.STARTUP_TIMEOUT, 0, True),
        (Reason.OUT_OF_MEMORY, 9, False),
    ],
)
def test_how_it_ended_may_tell(reason: Reason, signal: int, expected: bool) -> None:
    assert echo(failed(reason=reason, signal=signal)) is expected


@pytest.mark.parametrize(
    "reason", [Reason.OUT_OF_MEMORY, Reason.NODE_LOST, Reason.NOT_STARTED, Reason.OUTPUT_LOST]
)
def test_what_no_peer_can_bring_about_is_none(reason: Reason) -> None:
    assert not echo(failed(message="Connection refused", reason=reason))


ECHO = failed(0, "EOFError", at=1)
OWN = failed(1, "boom", at=2)
LATER = failed(2, "boom", at=3)
NOTED = failed(3, "boom", at=9, raised_at=1.5)


@pytest.mark.parametrize(
    ("failures", "cause"),
    [
        ([ECHO], ECHO),
        ([ECHO, OWN], OWN),
        ([LATER, OWN], OWN),
        ([OWN, LATER, NOTED], NOTED),
        ([OWN, failed(4, "boom", at=2)], OWN),
        (
            [ECHO, failed(5, "EOFError", at=9, raised_at=0.5)],
            failed(5, "EOFError", at=9, raised_at=0.5),
        ),
        (
            [failed(5, "EOFError", at=9, raised_at=0.0), ECHO],
            failed(5, "EOFError", at=9, raised_at=0.0),
        ),
    ],
)
def test_first(failures: list[Failure], cause: Failure) -> None:
    assert first(failures) == cause
    assert consequences(failures, failures[0]) == tuple(failures[1:])
