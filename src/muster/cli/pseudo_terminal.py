"""Connect this process's terminal with a terminal of its own for another process."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
import socket
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from muster.errors import EngineError
from muster.node.files import write_all

if TYPE_CHECKING:
    from muster.api.node_access import NodeProcess, OpenFile

#: Signals that the other process gets from here; those of keys it gets from its terminal.
_FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
_TERMINATING = (signal.SIGTERM, signal.SIGHUP)
#: Seconds from a terminating signal until the other process's terminal is hung up, and from then
#: until it is killed.
_HANG_UP_AFTER, _KILL_AFTER = 1.0, 2.0


def run_in_terminal(start: Callable[[OpenFile], NodeProcess]) -> int:
    """Run a process in a pseudo-terminal that shows on this terminal; returns its exit code.

    start: starts the process with the given end of the pseudo-terminal.
    """
    ours, theirs = os.openpty()
    _copy_size(ours)
    with _signal_numbers() as signals:
        with _raw(0):  # from the start, or a first Ctrl-C would not arrive as a key
            with open(theirs, "r+b", buffering=0) as terminal:
                process = start(terminal)
            terminated = _relay(ours, signals, process)
        os.close(ours)  # hangs up what still has the terminal
        return _wait(process, signals, terminated=terminated)


def _relay(ours: int, signals: int, process: NodeProcess) -> bool:
    """Copy in both directions until the pseudo-terminal is closed at the other end, or has to be
    hung up: an interactive shell ignores SIGTERM. Returns whether this process is terminated."""
    poll = select.poll()
    for descriptor in (signals, 0, ours):  # a new size before the keys that were pressed after it
        poll.register(descriptor, select.POLLIN)
    hang_up_at = math.inf
    while (now := time.monotonic()) < hang_up_at:
        timeout = None if hang_up_at == math.inf else (hang_up_at - now) * 1000
        poll.poll(timeout)
        # once more: the number of a signal that came with a key is there when the call returns
        for descriptor, _ in poll.poll(0):
            if descriptor == signals:
                if _handle(os.read(signals, 64), ours, process) and hang_up_at == math.inf:
                    hang_up_at = time.monotonic() + _HANG_UP_AFTER
            elif descriptor == ours:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # Linux's end of file
                    data = b""
                if not data:
                    return hang_up_at != math.inf
                _write(1, data)
            else:
                data = _read_terminal()
                if data:
                    _write(ours, data)
                else:
                    poll.unregister(0)  # this terminal is gone, and SIGHUP follows
    return True


def _wait(process: NodeProcess, signals: int, *, terminated: bool) -> int:
    """Wait for the process, which is killed a while after this one is terminated. Returns its exit
    code."""
    ended, end = os.pipe()  # a thread closes the second when the process has ended
    Thread(target=_close_at_end, args=(process, end), daemon=True).start()
    poll = select.poll()
    for descriptor in (signals, ended):
        poll.register(descriptor, select.POLLIN)
    kill_at = time.monotonic() + _KILL_AFTER if terminated else math.inf
    while (left := kill_at - time.monotonic()) > 0:
        ready = dict(poll.poll(None if kill_at == math.inf else left * 1000))
        if ended in ready:
            break
        if signals in ready and _handle(os.read(signals, 64), None, process):
            kill_at = min(kill_at, time.monotonic() + _KILL_AFTER)
    else:
        process.send_signal(signal.SIGKILL)
    os.close(ended)
    return process.wait()


def _close_at_end(process: NodeProcess, descriptor: int) -> None:
    try:
        with contextlib.suppress(EngineError):  # raised again for the main thread
            process.wait()
    finally:
        os.close(descriptor)


def _read_terminal() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # its reader has ended, which ends the relay in a moment
        write_all(descriptor, data)


def _handle(numbers: bytes, ours: int | None, process: NodeProcess) -> bool:
    """Pass signals on, and a new size to the pseudo-terminal if there is one. Returns whether one
    of them terminates this process."""
    for number in numbers:
        if number == signal.SIGWINCH:
            if ours is not None:
                _copy_size(ours)
                process.resize(*termios.tcgetwinsize(ours))
        elif number in _FORWARDED:
            process.send_signal(number)
    return any(number in _TERMINATING for number in numbers)


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
    tty.setraw(descriptor, termios.TCSADRAIN)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
