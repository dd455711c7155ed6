"""Connect this process's terminal with a terminal of its own for another process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from muster.node.processes import exit_of

#: Signals that the other process gets from here; those of keys it gets from its terminal.
_FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


def run_in_terminal(start: Callable[[int], int]) -> int:
    """Run a process in a pseudo-terminal that shows on this terminal; returns its exit code.

    start: starts the process with the given end of the pseudo-terminal, and returns its pid.
    """
    ours, theirs = os.openpty()
    _copy_size(ours)
    with _signal_numbers() as signals:
        with _raw(0):  # from the start, or a first Ctrl-C would not arrive as a key
            pid = start(theirs)
            os.close(theirs)
            _relay(ours, signals, pid)
        _, status = os.waitpid(pid, 0)
    os.close(ours)
    return exit_of(status)[0]


def _relay(ours: int, signals: int, pid: int) -> None:
    """Copy in both directions until the pseudo-terminal is closed at the other end."""
    poll = select.poll()
    for descriptor in (signals, 0, ours):  # a new size before the keys that were pressed after it
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == signals:
                _handle(os.read(signals, 64), ours, pid)
            elif descriptor == ours:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # Linux's end of file
                    return
                if not data:
                    return
                _write(1, data)
            else:
                data = _read_terminal()
                if data:
                    _write(ours, data)
                else:
                    poll.unregister(0)  # this terminal is gone, and SIGHUP follows


def _read_terminal() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):  # its reader has ended, which ends the relay in a moment
        while view:
            view = view[os.write(descriptor, view) :]


def _handle(numbers: bytes, ours: int, pid: int) -> None:
    for number in numbers:
        if number == signal.SIGWINCH:
            _copy_size(ours)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _copy_size(ours: int) -> None:
    """Give the pseudo-terminal the size of this terminal."""
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, size)


@contextmanager
def _signal_numbers() -> Iterator[int]:
    """A descriptor from which the numbers of the signals to handle are read."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    numbers = (*_FORWARDED, signal.SIGWINCH)
    before = [(number, signal.signal(number, lambda *_: None)) for number in numbers]
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    try:
        yield ours.fileno()
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before:
            signal.signal(number, handler)
        ours.close()
        theirs.close()


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Pass every key on, and restore the terminal afterwards."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
