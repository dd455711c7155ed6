"""One launcher of supervisors for many tests: each takes 0.15 s of processor time to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from muster.control.launcher import Launcher
from muster.store.records import Lease
from muster.submission import Submission

#: Variables that differ in each test, and that a launcher does not use.
_UNUSED = ("MUSTER_HOME", "PYTEST_CURRENT_TEST")
#: Launchers that are kept, for different environments.
_KEPT = 8

#: The product's function, which tests replace.
spawn = Launcher.spawn


def have_linger(monkeypatch: pytest.MonkeyPatch, agents: float, supervisors: float = 600.0) -> None:
    """Have launchers that are spawned from now on keep a supervisor, and this an idle agent, for so
    many seconds. The product's take a second: on a busy machine, the next run comes later."""
    start = os.posix_spawn
    names = {
        "muster.control.launcher": f"_SharedSupervisors.LINGER = {supervisors}",
        "muster.engines.local.agent_pool": f"_LINGER = {agents}",
    }
    changes = "".join(f"import {name}; {name}.{change}; " for name, change in names.items())

    def start_with_changes(path: str, argv: Sequence[str], *rest: Any, **more: Any) -> int:
        before, call, last = argv[-1].partition("serve_on(")
        return start(path, [*argv[:-1], f"{before}{call and changes}{call}{last}"], *rest, **more)

    monkeypatch.setattr("muster.control.launcher.os.posix_spawn", start_with_changes)


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
