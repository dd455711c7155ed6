"""What is done with containers of a run. Each call waits for the engine, so threads make it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from muster.engines.container import bodies
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.gpus import explained
from muster.node import folder_access, unix_sockets
from muster.node.file_watch import Watcher
from muster.node.files import remove_tree
from muster.spec.quantities import format_size

T = TypeVar("T")
#: How often a call is repeated whose answer was lost, and seconds between two.
_TRIES, _PAUSE = 5, 0.5
#: Seconds for which what removes something is repeated: nobody else will.
REMOVAL_SECONDS = 60.0
#: A label: the name may be that of another container.
_MADE = "muster.made"
#: Seconds for a container to end whose server has left, and between looks.
_LEAVE_TIMEOUT, _LEAVE_PAUSE = 3.0, 0.02
#: Seconds for somebody else to remove a container.
_REMOVAL_TIMEOUT = 20.0
#: Seconds for a server to accept connections, and between looks at its container.
_START_TIMEOUT, _LOOK = 120.0, 1.0
#: The exit code of what was killed (SIGKILL), such as for using too much memory.
_KILLED = 137
#: Exit codes above it are of what a signal has ended.
_SIGNALED = 128
#: Seconds for a container to vanish that was ended to be removed.
_VANISH_TIMEOUT = 1.0


#: The socket of a server, in its folder.
_SOCKET = "socket"
#: Errors of opening what is no folder, or a link.
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


class CannotStart(Exception):  # noqa: N818
    """The text is a sentence for people."""


class Found(Struct, frozen=True):
    """A container of a run."""

    slot: int
    id: str
    running: bool


def list_containers(daemon: Daemon, run_id: str) -> list[Found]:
    """The containers of a run's nodes, by slot. Raises CannotReach, Refused."""
    filters = {"label": [f"{bodies.RUN}={run_id}"]}
    listed = daemon.get("containers", "json", all="true", filters=filters)
    return sorted(_found(listed), key=lambda one: one.slot)


def _found(listed: Sequence[Mapping[str, Any]]) -> Iterator[Found]:
    for one in listed:
        labels = one.get("Labels") or {}
        slot = labels.get(bodies.SLOT, "")
        if slot.isdigit() and bodies.NAME not in labels:
            yield Found(int(slot), one["Id"], one.get("State") in ("running", "paused"))


class Extra(Struct, frozen=True):
    """Another container of a node."""

    id: str
    #: Of the incarnation for which it was made.
    number: str


def list_extra(daemon: Daemon, run_id: str, slot: int | None = None) -> dict[str, Extra]:
    """The other containers of a slot by their names in the job; None: of all slots, by their ids.
    Raises CannotReach, Refused."""
    labels = [f"{bodies.RUN}={run_id}", bodies.NAME]
    if slot is not None:
        labels.append(f"{bodies.SLOT}={slot}")
    found = dict[str, Extra]()
    for one in daemon.get("containers", "json", all="true", filters={"label": labels}):
        name = one["Id"] if slot is None else one["Labels"][bodies.NAME]
        found[name] = Extra(one["Id"], one["Labels"].get(bodies.INCARNATION, ""))
    return found


def remove_extra(daemon: Daemon, run_id: str, slot: int | None = None) -> None:
    """Remove the other containers of a slot, or of all. Raises CannotReach, Refused."""
    for one in list_extra(daemon, run_id, slot).values():
        remove(daemon, one.id)


def stop_in_turn(daemon: Daemon, names: Sequence[str], grace: float) -> None:
    """End containers, each when the one before has ended. grace: seconds for all of them. Raises
    CannotReach."""
    deadline = time.monotonic() + grace
    for name in names:
        left = max(0, round(deadline - time.monotonic()))
        with contextlib.suppress(Refused):  # it does not exist
            daemon.call("POST", ("containers", name, "stop"), {"t": str(left)}, timeout=left + 60)


def state_of(daemon: Daemon, made: str) -> Mapping[str, Any] | None:
    """How a container is; None if there is none. Raises CannotReach, Refused."""
    found = repeated(lambda: _inspect(daemon, made))
    state: Mapping[str, Any] | None = None if found is None else found["State"]
    return state


def is_alive(state: Mapping[str, Any]) -> bool:
    """Whether a container with this state has not ended."""
    return bool(state.get("Running")) or state.get("Status") in ("created", "restarting", "paused")


def signal(daemon: Daemon, made: str, name: str) -> None:
    """Send a signal to the first process of a container; nothing if it has ended. Raises
    CannotReach."""
    with contextlib.suppress(Refused):
        repeated(lambda: daemon.call("POST", ("containers", made, "kill"), {"signal": name}))


def repeated(call: Callable[[], T], seconds: float = 0.0) -> T:
    """What a call returns that may be repeated: it is if its answer was lost, a few times, and at
    least for so many seconds. Raises what it does."""
    deadline = time.monotonic() + seconds
    for number in count(1):
        try:
            return call()
        except CannotReach:
            if number >= _TRIES and time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)  # the engine may be starting
    raise AssertionError("it has returned or raised")


def create_network(daemon: Daemon, body: Mapping[str, Any]) -> None:
    """Create a network, unless it exists. Raises CannotReach, Refused."""
    try:
        repeated(lambda: daemon.call("POST", ("networks", "create"), {}, body))
    except Refused as error:
        # Docker: 409; Podman 4: 500
        if error.status != 409 and "already" not in str(error):
            raise


def remove_network(daemon: Daemon, run_id: str) -> None:
    """Remove a run's network. Raises CannotReach; Refused if it is in use."""
    words = ("networks", bodies.network_name(run_id))
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE)  # a container that uses it is being removed
        try:
            repeated(lambda: daemon.call("DELETE", words, {}), REMOVAL_SECONDS)
        except Refused as error:
            if error.status == 404:
                return
            if number == _TRIES - 1:
                raise
        else:
            return


def is_missing(source: str) -> bool:
    """Whether what is to be mounted is not there. Podman makes a directory then."""
    try:
        os.stat(source)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # the engine may reach it
        return False
    return False


def create(daemon: Daemon, name: str, body: Mapping[str, Any]) -> str:
    """Create a container and start it. Another one with this name is removed: that of an earlier
    node. Returns its id. Raises CannotStart, CannotReach."""
    for mount in body["HostConfig"]["Mounts"]:
        if is_missing(mount["Source"]):
            text = f"{mount['Source']} is not on this machine: it was to be at {mount['Target']}"
            raise CannotStart(text)
    own = os.urandom(8).hex()
    body = {**body, "Labels": {**body["Labels"], _MADE: own}}
    made = repeated(lambda: _create_once(daemon, name, body, own))
    repeated(lambda: _start_once(daemon, made, body))
    return made


def _create_once(daemon: Daemon, name: str, body: Mapping[str, Any], own: str) -> str:
    """own: by which one is recognized that was made though the answer was lost."""
    for number in range(_TRIES):
        try:
            made = daemon.call("POST", ("containers", "create"), {"name": name}, body)
            return str(made["Id"])
        except Refused as error:
            # Docker: 409; Podman 4: 500
            if error.status not in (409, 500) or number == _TRIES - 1:
                raise CannotStart(
                    f"its container cannot be created: {explained(str(error))}"
                ) from None
            found = _inspect(daemon, name)
            if found is None and "in use" not in str(error):
                raise CannotStart(
                    f"its container cannot be created: {explained(str(error))}"
                ) from None
            if found is not None and (found["Config"].get("Labels") or {}).get(_MADE) == own:
                return str(found["Id"])
            if found is not None:
                _remove_other(daemon, str(found["Id"]))
            time.sleep(_PAUSE / 5)
    raise AssertionError("the last try has returned or raised")


def _remove_other(daemon: Daemon, made: str) -> None:
    """Raises CannotStart, CannotReach."""
    try:
        remove(daemon, made)
    except Refused as error:
        raise CannotStart(f"the container that has its name cannot be removed: {error}") from None


def _start_once(daemon: Daemon, made: str, body: Mapping[str, Any]) -> None:
    try:
        daemon.call("POST", ("containers", made, "start"), {})
    except Refused as error:
        which = "it" if bodies.NAME in body["Labels"] else "its container"
        raise CannotStart(f"{which} cannot be started: {explained(str(error))}") from None


def wait_for_server(daemon: Daemon, made: str, folder: Path) -> None:
    """Wait until the server of a node accepts connections. folder: its own. Raises CannotStart,
    CannotReach."""
    import select

    watcher = Watcher()
    deadline = time.monotonic() + _START_TIMEOUT
    try:
        watcher.add(folder.parent)
        is_there = False
        poll = select.poll()
        if (descriptor := watcher.fileno()) is not None:
            poll.register(descriptor, select.POLLIN)
        while not accepts(folder):
            if not is_there and os.path.lexists(folder):
                is_there = True
                with contextlib.suppress(OSError):  # the container has ended
                    watcher.add(folder)
                continue
            wait = min(_LOOK, watcher.timeout() or _LOOK)
            if poll.poll(1 if os.path.lexists(folder / _SOCKET) else 1000 * wait):
                watcher.drain()
                continue
            why = why_ended(daemon, made)
            if why:
                raise CannotStart(f"its node server has not started: {why}")
            if time.monotonic() > deadline:
                raise CannotStart(f"its node server does not answer within {_START_TIMEOUT:.0f} s")
    finally:
        watcher.close()


def connect(folder: Path) -> socket.socket:
    """A connection to a server. folder: its own, in that of its slot. The container could write
    there, so a link is not followed: another program may listen where it leads. Raises OSError."""
    inside = folder_access.descend(str(folder.parent), folder.name)
    try:
        found = os.open(_SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    finally:
        os.close(inside)
    try:  # a link is no socket: refused
        return unix_sockets.connect("/proc/self/fd", str(found))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    finally:
        os.close(found)


def accepts(folder: Path) -> bool:
    """Whether a server accepts connections. folder: its own."""
    try:
        connect(folder).close()
    except OSError:
        return False
    return True


def why_ended(daemon: Daemon, made: str) -> str:
    """Why a container has ended, as a phrase; "" if it runs. Raises CannotReach."""
    try:
        found = _inspect(daemon, made)
    except Refused as error:
        return str(error)
    if found is None:
        return "its container was removed"
    state = found["State"]
    if is_alive(state):
        return ""
    code = state.get("ExitCode", -1)
    limit = (found.get("HostConfig") or {}).get("Memory") or 0
    if state.get("OOMKilled"):
        has = f" of {format_size(limit)}" if limit else ""
        return f"its container used more memory than its limit{has}, and was killed"
    if code > _SIGNALED and _vanishes(daemon, made, _VANISH_TIMEOUT, _LEAVE_PAUSE):
        return "its container was removed"
    if code == _KILLED:
        why = f", as when it uses more memory than its limit of {format_size(limit)}"
        return f"its container was killed ({code}){why if limit else ''}"
    if state.get("Error"):
        return f"its container failed: {state['Error']}"
    said = last_lines(daemon, made)
    return f"its container exited with {code}" + (f": {said}" if said else "")


def _vanishes(daemon: Daemon, made: str, timeout: float, pause: float) -> bool:
    """Whether a container is gone soon, as somebody else removes it. timeout: seconds; pause: those
    between two looks. Raises CannotReach."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if _inspect(daemon, made) is None:
                return True
        except Refused:  # it is half gone
            pass
        time.sleep(pause)
    return False


def _inspect(daemon: Daemon, name: str) -> Mapping[str, Any] | None:
    """None if there is no such container. Raises CannotReach, Refused."""
    try:
        found: Mapping[str, Any] = daemon.get("containers", name, "json")
    except Refused as error:
        if error.status == 404 or "no such container" in str(error):  # 500: it is being removed
            return None
        raise
    return found


def last_lines(daemon: Daemon, made: str) -> str:
    """What its first process has written last."""
    try:
        text = daemon.text("containers", made, "logs", stdout="true", stderr="true", tail="5")
    except (CannotReach, Refused):
        return ""
    return " / ".join(line for line in text.splitlines() if line.strip())[-500:]


def wait_until_ended(daemon: Daemon, made: str) -> None:
    """Wait some seconds for the end of a container whose server has left. Podman 4 waits for all of
    its timeouts if it is to remove one that ends in that moment. Raises CannotReach."""
    deadline = time.monotonic() + _LEAVE_TIMEOUT
    while _is_running(daemon, made) and time.monotonic() < deadline:
        time.sleep(_LEAVE_PAUSE)


def _is_running(daemon: Daemon, made: str) -> bool:
    try:
        found = _inspect(daemon, made)
    except Refused:  # it is half gone
        return False
    return found is not None and bool(found["State"].get("Running"))


def remove(daemon: Daemon, made: str) -> None:
    """End a container and remove it. Returns when it is gone. made: id or name. Raises CannotReach,
    Refused."""
    query = {"force": "true", "v": "true"}  # at once: what is to end with its node has ended
    try:
        repeated(lambda: daemon.call("DELETE", ("containers", made), query))
    except Refused as error:
        # somebody else removes it
        if error.status != 404 and not _vanishes(daemon, made, _REMOVAL_TIMEOUT, _PAUSE / 5):
            raise


def provide_folder(folder: Path) -> None:
    """Make an empty folder for a slot, in one that only its owner may enter. The user of the image
    may write there. Raises OSError."""
    remove_folder(folder)
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir()
    os.chmod(folder, 0o777)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a slot, if it exists. Raises OSError."""
    if os.path.lexists(folder):
        remove_tree(str(folder))


def keep_files(root: Path, places: Sequence[str], target: Path) -> set[str]:
    """Move folders to one that is made, before they are removed. root: the folder of a slot, in
    which the container could write, so no link in it is followed; places: paths in it. Returns the
    names of those in which there were files. Raises OSError."""
    kept = set[str]()
    for place in places:
        parent, _, name = place.rpartition("/")
        try:
            above = folder_access.descend(str(root), parent)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            continue
        try:
            if _has_files(above, name):
                target.mkdir(mode=0o700, parents=True, exist_ok=True)
                moved = target / name
                os.rename(name, moved, src_dir_fd=above)
                if moved.is_symlink():  # something still runs there
                    moved.unlink()
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
                kept.add(name)
        finally:
            os.close(above)
    return kept


def _has_files(above: int, name: str) -> bool:
    """Whether this is a folder in an opened one, with files in it or below, or what cannot be
    listed. Raises OSError."""
    failed: list[OSError] = []
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        return False
    try:
        for _, names, opened in folder_access.walk(folder, failed.append):
            for one in names:
                found = os.stat(one, dir_fd=opened, follow_symlinks=False)
                if not stat.S_ISDIR(found.st_mode):
                    return True
        return bool(failed)
    finally:
        os.close(folder)


def provide_source(path: Path) -> None:
    """Make a volume or a scratch folder as `provide_folder` does, unless it is there. Raises
    OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        os.chmod(path, 0o777)
