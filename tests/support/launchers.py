"""One launcher of supervisors for many tests: each takes 0.15 s of processor time to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import ClassVar

from muster.control.launcher import Launcher
from muster.store.records import Lease
from muster.submission import Submission

#: Variables that differ in each test, and that a launcher does not use.
_UNUSED = ("MUSTER_HOME", "PYTEST_CURRENT_TEST")
#: Launchers that are kept, for different environments.
_KEPT = 8

#: The product's function, which tests replace.
spawn = Launcher.spawn


class SharedLauncher(Launcher):
    """A launcher that stays open when a client is closed, for the next one."""

    _open: ClassVar[dict[Hashable, SharedLauncher]] = {}

    @classmethod
    def of_environment(cls) -> SharedLauncher:
        """The launcher that was spawned in the environment, the folder and with the search path
        that this process has now."""
        variables = {name: text for name, text in os.environ.items() if name not in _UNUSED}
        key = frozenset(variables.items()), os.getcwd(), tuple(sys.path)
        launcher = cls._open.pop(key, None) or spawn.__func__(cls)
        cls._open[key] = launcher
        if len(cls._open) > _KEPT:
            next(iter(cls._open.values())).end()
        return launcher

    @classmethod
    def end_all(cls) -> None:
        for launcher in list(cls._open.values()):
            launcher.end()

    def start(
        self,
        home: Path,
        run: Lease,
        engine: str,
        held: tuple[int, int],
        submission: Submission,
        *,
        shared: bool = False,
    ) -> int:
        try:
            return super().start(home, run, engine, held, submission, shared=shared)
        except BaseException:
            self.end()
            raise

    def close(self) -> None:
        """Keep the launcher for the next client."""

    def end(self) -> None:
        for key in [key for key, launcher in self._open.items() if launcher is self]:
            del self._open[key]
        super().close()
