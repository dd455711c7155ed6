"""Which of several failures came first."""

from __future__ import annotations

import pytest

from muster.lifecycle.cause import consequences, first, is_consequence
from muster.lifecycle.states import NodeState
from muster.lifecycle.status import Failure, Reason
from support.run_driver import policy, running


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
        "ConnectionError: peer lost",
        "RuntimeError: lost the connection to rank 0",
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
    assert is_consequence(failed(message=message))


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
def test_other_messages_do_not_look_like_a_consequence(message: str) -> None:
    assert not is_consequence(failed(message=message))


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
        (Reason.UNHEALTHY, 0, True),
        (Reason.PREFLIGHT, 0, False),
        (Reason.STARTUP_TIMEOUT, 0, True),
        (Reason.OUT_OF_MEMORY, 9, False),
    ],
)
def test_the_reason_and_signal_can_show_a_consequence(
    reason: Reason, signal: int, expected: bool
) -> None:
    assert is_consequence(failed(reason=reason, signal=signal)) is expected


@pytest.mark.parametrize(
    "reason", [Reason.OUT_OF_MEMORY, Reason.NODE_LOST, Reason.NOT_STARTED, Reason.OUTPUT_LOST]
)
def test_failures_that_no_peer_can_cause_are_no_consequences(reason: Reason) -> None:
    assert not is_consequence(failed(message="Connection refused", reason=reason))


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
def test_the_first_cause(failures: list[Failure], cause: Failure) -> None:
    assert first(failures) == cause
    assert consequences(failures, failures[0]) == tuple(failures[1:])


SLOW = "Traceback (most recent call last):\n  File ...\nValueError: bad batch"
FAST = "Traceback (most recent call last):\n  ...\nConnectionResetError: [Errno 104] reset by peer"


def test_a_cause_that_ends_last_is_found_by_its_traceback() -> None:
    """Its connections break first; it ends last, by our signal; its traceback is the cause."""
    run = running(policy((1, 3, None)))
    run.step(run.ended(0, 1, message=FAST))
    assert run.status.cause is not None
    assert run.status.cause.rank == 0, "as far as is known"
    run.end(2, 143, signal=15, message=SLOW).end(1, 143, signal=15, message="a warning")
    assert run.status.cause.rank == 2
    assert run.status.details.endswith("ValueError: bad batch")
    assert [f.rank for f in run.status.failures] == [0, 2], "node 1 ended because it was stopped"


@pytest.mark.parametrize("code", [1, 143])
def test_an_exception_that_our_signal_raised_is_no_failure(code: int) -> None:
    """As of torchrun, whose agent raises SignalException and exits with 1."""
    run = running(policy((1, 3, None)))
    run.step(run.ended(0, 1, message=SLOW))
    name = "torch.distributed.elastic.multiprocessing.api.SignalException"
    stopped = f"Traceback (most recent call last):\n  x\n{name}: Process 2 got signal: 15"
    run.end(1, code, message=stopped).end(2, code, message=stopped)
    assert [f.rank for f in run.status.failures] == [0]
    assert [node.state for node in run.status.nodes[1:]] == [NodeState.STOPPED] * 2


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(f"{FAST}\n\nDuring handling ...\n\n{SLOW}", False, id="while handling it"),
        pytest.param(
            "Traceback (most recent call last):\n  x\nConnectionResetError: closed\n\n"
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
def test_the_exception_that_was_the_cause_of_another_counts(message: str, expected: bool) -> None:
    assert is_consequence(failed(message=message)) is expected


def test_a_node_that_ended_with_an_exception_was_not_ended_by_a_peer() -> None:
    message = "Traceback (most recent call last):\n  x\nValueError: a"
    assert not is_consequence(failed(message=message, signal=15))
    assert is_consequence(failed(message="ValueError: a", signal=15))
