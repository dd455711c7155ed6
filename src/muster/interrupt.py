"""Ctrl-C, for a command: from our first line to the last it ends without a traceback.

Not before that: while Python itself starts, what is said is Python's to say.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing takes longer to import than all of this takes to run
if TYPE_CHECKING:
    import signal
    from types import FrameType
else:
    import _signal as signal  # built in; the module around it has much to import first

#: What a command ends with that Ctrl-C has ended, as for a shell: 128 and the signal's number.
EXIT_INTERRUPTED = 130


def leave(_number: int, _frame: FrameType | None) -> None:
    """While there is nothing to tidy up, or to say."""
    os._exit(EXIT_INTERRUPTED)


def leave_at_once() -> None:
    """Have Ctrl-C end the process at once, unless whoever started it wants it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = _swallowed


class Raised:
    """Within it Ctrl-C is a KeyboardInterrupt, for those who have to tidy up."""

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        leave_at_once()


class Held:
    """Within it signals wait: from being accepted to being named, no run is lost to one."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def __enter__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)


def _swallowed(unraisable: sys.UnraisableHookArgs) -> None:
    """It came where nothing can be raised, in a finalizer, and nobody else will hear of it."""
    if unraisable.exc_type is KeyboardInterrupt:
        os._exit(EXIT_INTERRUPTED)
    sys.__unraisablehook__(unraisable)
