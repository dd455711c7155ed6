"""Containers as processes of this machine, with what they write."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from support.kube.users import ContainerUser

#: A variable that all processes of a container have, by which they are found.
MARK = "KUBE_DOUBLE_CONTAINER"
#: Seconds between two looks whether those that were killed have ended.
_PAUSE = 0.005


class Line(NamedTuple):
    """Output of a container: a line, or what has arrived of it."""

    time: float
    content: bytes


class Log:
    """What a container has written."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.is_over = False
        self._changed = threading.Condition()

    def add(self, content: bytes) -> None:
        with self._changed:
            self.lines.append(Line(time.time(), content))
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.is_over = True
            self._changed.notify_all()

    def follow(self, first: int, *, follow: bool) -> Iterator[Line | None]:
        """Lines from a number on. follow: until the container has ended; None now and then."""
        at = first
        while True:
            with self._changed:
                if at >= len(self.lines) and follow and not self.is_over:
                    self._changed.wait(0.5)
                new, over = self.lines[at:], self.is_over
            at += len(new)
            yield from new
            if not new:
                if not follow or over:
                    return
                yield None

    def tail(self, lines: int = 80, size: int = 2048) -> str:
        content = b"".join(one.content for one in self.lines[-lines:])
        return content[-size:].decode(errors="replace")


class Container:
    """A running container. on_end: called in a thread when its process has ended and all that it
    has written is known."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        on_end: Callable[[], object],
        user: ContainerUser,
    ) -> None:
        self.mark = os.urandom(8).hex()
        self.log = Log()
        self.started = self.ended = time.time()
        self.code: int | None = None
        #: What ended it, if it was not itself, such as OOMKilled.
        self.reason = ""
        self._on_end, self.user = on_end, user
        self.env = {**env, MARK: self.mark}
        self.process = subprocess.Popen(
            argv,
            env=self.env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **user.process_options(),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def signal(self, number: int) -> None:
        """Signal its first process."""
        if self.code is None:
            try:
                os.kill(self.process.pid, number)
            except ProcessLookupError:
                pass

    def kill(self, reason: str = "") -> None:
        """End all of its processes at once."""
        self.reason = self.reason or reason
        if self.code is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        kill_marked(self.mark)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as pipe:
            for line in pipe:
                self.log.add(line)

    def _wait(self) -> None:
        code = self.process.wait()
        # when the first process of a container ends, the kernel ends the others
        kill_marked(self.mark)
        self._reader.join(10)
        self.log.end()
        self.ended = time.time()
        self.code = code if code >= 0 else 128 - code
        self._on_end()


def kill_marked(mark: str) -> None:
    """End the processes that a container has started, wherever they are by now. Returns when they
    have ended: one may start another one before it is killed."""
    while pids := marked(mark):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def marked(mark: str) -> list[int]:
    """The processes of a container."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
    return found
