"""Which of several failures came first."""

from __future__ import annotations

import pytest

from muster.lifecycle.cause import consequences, echo, first
from muster.lifecycle.status import Failure, Reason
from support.life import policy, running


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


SLOW = "Traceback (most recent call last):\n  File ...\nValueError: bad batch"
FAST = "Traceback (most recent call last):\n  ...\nConnectionResetError: [Errno 104] reset by peer"


def test_a_cause_that_was_still_coming_down_when_it_was_told_to_end() -> None:
    """Its connections break first, it ends last, and of our signal; its traceback tells on it."""
    life = running(policy((1, 3, None)))
    life.tell(life.ended(0, 1, message=FAST))
    assert life.status.cause is not None
    assert life.status.cause.rank == 0, "as far as anybody knows"
    life.end(2, 143, signal=15, message=SLOW).end(1, 143, signal=15, message="a warning")
    assert life.status.cause.rank == 2
    assert life.status.details.endswith("ValueError: bad batch")
    assert [f.rank for f in life.status.failures] == [0, 2], "node 1 only did as it was told"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(f"{FAST}\n\nDuring handling ...\n\n{SLOW}", False, id="while handling it"),
        pytest.param(
            "Traceback (most recent call last):\n  x\nConnectionResetError: gone\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            "Traceback (most recent call last):\n  y\nRuntimeError: allreduce failed",
            True,
            id="raised from it",
        ),
        pytest.param(
            "Traceback (most recent call last):\n  x\n    ~~^^\n^^^\nValueError: a\n"
            "connection closed",
            False,
            id="marks in the first column",
        ),
    ],
)
def test_what_an_exception_was_raised_from_counts(message: str, expected: bool) -> None:
    assert echo(failed(message=message)) is expected


def test_who_ended_of_an_exception_was_not_ended_by_others() -> None:
    told = "Traceback (most recent call last):\n  x\nValueError: a"
    assert not echo(failed(message=told, signal=15))
    assert echo(failed(message="ValueError: a", signal=15))
