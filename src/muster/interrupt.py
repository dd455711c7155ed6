"""Ctrl-C ends a command without a traceback, from the first line of Muster to the last.

While the interpreter itself starts, Python may still print one.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than running this module
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # built in; the module `signal` imports more

#: Exit code of a command that Ctrl-C ended, as in a shell: 128 + the number of the signal.
#: `errors.EXIT_INTERRUPTED` is the same; its module imports more than this one may.
EXIT_INTERRUPTED = 130


def leave(_number: int, _frame: FrameType | None) -> None:
    """End the process at once, while there is nothing to clean up."""
    os._exit(EXIT_INTERRUPTED)


def leave_at_once() -> None:
    """Make Ctrl-C end the process at once, unless the parent process has set it to be ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = _exit_if_interrupted


def exit_when_terminated() -> None:
    """Have SIGTERM and SIGHUP raise SystemExit, for a command that has to clean up; unless the
    parent process has set them to be ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


class Raised:
    """Within this context Ctrl-C raises KeyboardInterrupt, for code that has to clean up."""

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        leave_at_once()


class Held:
    """Within this context signals are blocked, so that a started run is not lost to one. What an
    outer one blocks stays blocked after an inner one."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


class Delivered:
    """Within this context signals arrive that `Held` blocks around it."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __enter__(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _exit_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """Exit for a KeyboardInterrupt in a finalizer, where it cannot be raised."""
    if unraisable.exc_type is KeyboardInterrupt:
        os._exit(EXIT_INTERRUPTED)
    sys.__unraisablehook__(unraisable)
