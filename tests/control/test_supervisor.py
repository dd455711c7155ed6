"""What a supervisor watches besides the nodes of a run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from muster.control import supervisor
from muster.control.keeper import Keeper
from muster.control.supervisor import Assignment, _Signals
from muster.engines.loop import EventLoop
from muster.errors import HomeGone
from muster.identity import new_owner
from muster.node import file_watch
from muster.storage import wakeup
from muster.storage.home import Home, RunDir
from muster.store.records import Lease


class Unlosable(Keeper):
    """A keeper of leases that nobody takes."""

    def __init__(self) -> None: ...

    def keep(self, *_: object) -> None: ...

    def drop(self, *_: object) -> None: ...


def signals_of(tmp_path: Path) -> tuple[Home, RunDir, _Signals]:
    """What a supervisor watches, with its folders."""
    home = Home(tmp_path / "home")
    home.prepare()
    folder = home.run_dir("r1")
    folder.path.mkdir()
    wakeup.create(folder.wakeup)
    for path in (home.records, folder.lock):
        path.touch()
    lease = Lease.first("r1", new_owner(), 1e12)
    return home, folder, _Signals(Assignment(home, lease, {}, "python3", -1, -1), Unlosable())


@pytest.mark.parametrize("notified", [True, False])
def test_files_that_are_gone_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notified: bool
) -> None:
    """The session may take long to close then, such as that of a cluster that does not answer. Also
    if the user has too many watchers."""
    if not notified:
        monkeypatch.setattr(file_watch, "_take_descriptor", lambda: -1)
        monkeypatch.setattr(supervisor, "_PRESENCE_INTERVAL", 0.01)
    home, folder, signals = signals_of(tmp_path)
    loop, calls = EventLoop(), list[str]()
    signals.watch(loop, lambda: calls.append("attend"))
    folder.lock.unlink()
    loop.run_once()
    assert calls == ["attend"]
    with pytest.raises(HomeGone, match="was deleted or moved away"):
        signals.check()
    shutil.rmtree(home.root)
    calls.clear()
    later = loop.add(lambda _: calls.append("later"))
    later.wake_at(loop.now() + 0.05)
    while not calls:  # a time that was given up may end a round, too
        loop.run_once()
    assert calls == ["later"]
    signals.close()
    loop.close()


def test_a_run_is_left_alone_while_its_files_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits would look at all runs before it each time."""
    monkeypatch.setattr(file_watch, "_take_descriptor", lambda: -1)
    monkeypatch.setattr(supervisor, "_PRESENCE_INTERVAL", 0.0)
    _, _, signals = signals_of(tmp_path)
    looks, calls = list[Path | None](), list[str]()
    real = signals._presence.missing

    def missing() -> Path | None:
        looks.append(real())
        return looks[-1]

    monkeypatch.setattr(signals._presence, "missing", missing)
    loop = EventLoop()
    signals.watch(loop, lambda: calls.append("attend"))
    for _ in range(3):
        loop.run_once()
    assert (looks, calls) == ([None] * 3, [])
    signals.wake()
    while not calls:
        loop.run_once()
    signals.close()
    loop.close()
