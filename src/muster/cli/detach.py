"""What signals do to `muster run` while it follows its runs.

SIGTERM, SIGHUP and, without a terminal, SIGINT detach: the command ends, its runs continue. On a
terminal, a first Ctrl-C detaches after some seconds, in which a second one cancels the runs
instead. Output is printed meanwhile, also while the runs are being canceled.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from muster.cli.streams import write
from muster.cli.terminal import echo, make_room, print_error
from muster.errors import (
    EXIT_HUNG_UP,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    InvalidInput,
    MusterError,
    Problem,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from muster.client.run import JobRun

#: Signals that end `muster run` but not its runs. SIGALRM: the time for a second Ctrl-C is over.
DETACH_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
#: Seconds after a Ctrl-C in which a second one cancels.
_TIME_TO_CANCEL = 5.0
#: Seconds until a lost signal is sent again; repeated while it would be lost again.
_AGAIN = 0.01
_EXIT_CODES = {
    signal.SIGINT: EXIT_INTERRUPTED,
    signal.SIGALRM: EXIT_INTERRUPTED,
    signal.SIGTERM: EXIT_TERMINATED,
}


class Detached(BaseException):
    """The command is to end, while its runs continue. number: of the signal that was received."""

    def __init__(self, number: int) -> None:
        self.number = number


def detach_on_signals(runs: Sequence[JobRun]) -> None:
    """Raise Detached on the signals, except those that the parent process ignores (nohup)."""

    def on_signal(number: int, _frame: object) -> None:
        raise Detached(number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, on_signal)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        ctrl_c = _CtrlC(runs)
        signal.signal(signal.SIGINT, ctrl_c.pressed)
        signal.signal(signal.SIGALRM, ctrl_c.time_is_up)
    sys.unraisablehook = _raise_again


def _raise_again(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what a signal handler raises while a destructor or a callback runs, such as that
    of the lock of an import. The signal is sent again, when that is over."""
    if not isinstance(lost.exc_value, Detached):
        sys.__unraisablehook__(lost)
        return
    main, number = threading.main_thread().ident or 0, lost.exc_value.number
    # what another one raises here is dropped, too: not before this one is certain to be sent again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, DETACH_SIGNALS)
    threading.Thread(target=_send_again, args=(main, number), daemon=True).start()
    with contextlib.suppress(Detached):
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send_again(main: int, number: int) -> None:
    """Send the main thread a signal when it is not in `_raise_again` any more, where what a handler
    raises is dropped, too."""
    frame: FrameType | None
    while True:
        time.sleep(_AGAIN)
        frame = sys._current_frames().get(main)
        while frame is not None and frame.f_code is not _raise_again.__code__:
            frame = frame.f_back
        if frame is None:
            signal.pthread_kill(main, number)
            return


class _CtrlC:
    """Counts how often Ctrl-C was pressed.

    Signal handlers run between any two steps of the program. So they only write a line, raise
    Detached or start a thread, which may then import modules and open the database.
    """

    def __init__(self, runs: Sequence[JobRun]) -> None:
        # signal handlers live longer than the database, which closes with the last of its users
        self._ids = [run.id for run in runs]
        self._names = " and ".join(run.name for run in runs)
        self._times = 0

    def pressed(self, number: int, _frame: object) -> None:
        self._times += 1
        if self._times > 2 or not _in_foreground():
            if os.isatty(2):
                _write("")  # ends the line in which the terminal shows ^C
            raise Detached(number)
        if self._times == 1:
            _write(
                f"\nPress Ctrl-C again within {_TIME_TO_CANCEL:g} s to cancel {self._names}, "
                "or Enter to detach at once."
            )
            threading.Thread(target=_alarm_later, daemon=True).start()
        else:
            _write(f"\nCanceling {self._names}. Press Ctrl-C again to stop waiting for its end.")
            threading.Thread(target=_cancel, args=(self._ids,), daemon=True).start()

    def time_is_up(self, number: int, _frame: object) -> None:
        if self._times == 1:
            raise Detached(number)  # if it is lost, SIGINT in its place would be a second Ctrl-C


def _in_foreground() -> bool:
    """Whether standard input is a terminal that this process may read from."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _write(line: str) -> None:
    """Print without `sys.stderr`, which may be in the middle of a write."""
    if make_room():  # the ^C is gone as well
        line = line.removeprefix("\n")
    write(2, memoryview(f"{line}\n".encode()))


def _alarm_later() -> None:
    """Send the process SIGALRM after the time in which Ctrl-C cancels, or when Enter is pressed."""
    # Lines that were typed before were not meant for this. They are read, since flushing the
    # terminal's input would also discard a second Ctrl-C that the kernel has not processed yet.
    while select.select([0], [], [], 0)[0] and os.read(0, 1 << 10):
        pass
    ready, _, _ = select.select([0], [], [], _TIME_TO_CANCEL)
    if ready:
        os.read(0, 1 << 10)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)


def _cancel(ids: Sequence[str]) -> None:
    from muster.client.client import Client
    from muster.spec.values import ADOPTED_TAG

    try:
        api = Client().api  # a connection to the database belongs to one thread
        for run_id in ids:
            if (adopted := api.find_run(run_id).tags.get(ADOPTED_TAG)) is not None:
                what = f"{adopted} was adopted, and is not deleted by Ctrl-C: `muster cancel` asks"
                raise InvalidInput(Problem("", what))
            api.cancel(run_id, "canceled by Ctrl-C")
    except MusterError as error:
        print_error(error)


def detach(runs: Sequence[JobRun], number: int) -> int:
    """Name the runs that continue. Returns the exit code for signal `number`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, DETACH_SIGNALS)
    for run in runs:
        run.refresh()
        if run.done or run.state == "SUSPENDED":
            continue
        if run.cancel_requested:
            force = f"`muster cancel --force {run.name}` kills it at once"
            echo(f"{run.name} is still being canceled; {force}", err=True)
        else:
            report_still_running(run)
    return _EXIT_CODES.get(signal.Signals(number), EXIT_HUNG_UP)


def report_still_running(run: JobRun) -> None:
    """Report that the run keeps running, how to follow it and how to cancel it."""
    name, state = run.name, "queued" if run.state == "QUEUED" else "running"
    sys.stdout.flush()
    echo(
        f"Detached from {name}; still {state}. Follow it with `muster logs {name} --follow`, "
        f"cancel it with `muster cancel {name}`",
        err=True,
    )
