"""The child's side of launching a node: from a fork of the supervisor to the node agent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from muster.engines.local import disk_image, fabric, linux, metadata, mounting, names
from muster.engines.local.cgroups import NodeLimits
from muster.engines.local.clearing import clear, have_empty, take_place
from muster.engines.local.isolation import Isolation, mount_proc
from muster.errors import EngineError, MusterError
from muster.frameworks.base import Network
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.files import make_way
from muster.plan.model import MountPlan, NodePlan
from muster.secrets import print_traceback


class NodeSetup(Struct, frozen=True):
    """What the child does before it becomes the node's agent.

    prepare: puts the code into the working directory and says what to run there. launch: the
    agent's message, without that. needed: what no mount may hide. private_shm: whether /dev/shm
    may be its own. disk: bytes of a disk of the node's own, None if it has none. metadata: what
    the metadata file's place leads to, if it is shown there. short: the folder with a short path,
    if anything of the node uses it. furnish: has what the job needs installed, by the first node
    to come.
    """

    node: NodePlan
    isolation: Isolation
    network: Network
    hosts: Path
    resolver: Path
    folder: Path
    work: Path
    mounts: tuple[MountPlan, ...]
    placed: dict[str, Path]
    needed: list[Path]
    limits: NodeLimits | None
    prepare: Callable[[Path], list[str]]
    launch: dict[str, Any]
    private_shm: bool
    disk: int | None = None
    metadata: Path | None = None
    short: Path | None = None
    furnish: Callable[[], None] | None = None


def fork_node(setup: NodeSetup, sock: socket.socket) -> int:
    """Fork the node's process, which talks to us on `sock`; returns its pid as we see it."""
    if setup.isolation.namespaces:
        linux.unshare(linux.CLONE_NEWPID)
    try:
        pid = os.fork()
        if pid == 0:
            _live(setup, sock)
    finally:
        if setup.isolation.namespaces:
            _children_here_again()
    return pid


def _live(setup: NodeSetup, sock: socket.socket) -> NoReturn:
    """The child's whole life."""
    code = 0
    try:
        _become_node(setup, sock)
    except BaseException:  # noqa: BLE001
        print_traceback()  # into supervisor.log
        code = 70
    finally:
        os._exit(code)


def _children_here_again() -> None:
    """Undo unshare(CLONE_NEWPID) for the children still to come."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.setns(own, linux.CLONE_NEWPID)
    finally:
        os.close(own)


def _become_node(setup: NodeSetup, sock: socket.socket) -> None:
    _let_go_of_the_rest(sock.fileno())
    channel = Channel(sock)
    incarnation = setup.launch["incarnation"]
    try:
        _settle(setup)
        channel.send(event="joined", incarnation=incarnation)
        channel.wait_for("begin")
        _connect(setup)
    except (OSError, MusterError) as error:
        said = {"exit_code": None, "signal": 0, "reason": "not_started", "message": str(error)}
        channel.send(event="ended", incarnation=incarnation, kept=False, **said)
        return
    except EOFError:
        return  # the supervisor is gone, and so are we
    run_agent(channel, setup.launch)


def _let_go_of_the_rest(keep: int) -> None:
    """Close what the supervisor has open: its lease, above all, must be its own."""
    listing = Path("/proc/self/fd")
    numbers = os.listdir(listing) if listing.is_dir() else map(str, range(3, 4096))
    for number in map(int, numbers):
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(number)
    signal.set_wakeup_fd(-1)
    os.setsid()


def _settle(setup: NodeSetup) -> None:
    """Everything that can be done before the others are known."""
    take_place(setup.folder)
    # before anything is mounted: what others see there is not ours to remove
    clear(setup.folder, setup.work)
    if setup.isolation.namespaces:
        linux.die_with_parent()
    if setup.furnish is not None:
        setup.furnish()  # with the machine's network, and outside the node's limits
    if setup.limits is not None:
        setup.limits.join()
    if setup.isolation.namespaces:
        kinds = linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC
        linux.unshare(kinds | (linux.CLONE_NEWNET if setup.network != "shared" else 0))
        mount_proc()
        socket.sethostname(setup.node.hostname)
        if names.HOSTS.exists():
            linux.bind(str(setup.hosts), str(names.HOSTS))
        if setup.network == "cluster" and names.RESOLVER.exists():
            linux.bind(str(setup.resolver), str(names.RESOLVER))
        if setup.private_shm:
            flags = linux.MS_NOSUID | linux.MS_NODEV
            linux.mount("tmpfs", "/dev/shm", "tmpfs", flags, "mode=1777")
        if setup.disk is not None:
            disk_image.lay(setup.folder, setup.disk)
        mounting.bind_mounts(setup.mounts, setup.placed, setup.folder, setup.needed)
        if setup.metadata is not None:
            metadata.place_link(setup.metadata)
    if setup.short is not None:
        have_empty(setup.short)
        (setup.short / "tmp").symlink_to(setup.folder / "tmp")
    _prepare_code(setup)
    _have_working_dir(setup)
    environ = setup.launch["processes"][0]["env"] | setup.launch.get("env", {})
    mounting.lay_links(setup.mounts, Path(setup.launch["cwd"]), environ)


def _connect(setup: NodeSetup) -> None:
    """The last steps: the network, now plugged in, and the submitter's own user again."""
    if setup.network != "shared":
        fabric.configure_node(setup.node.address, routed=setup.network == "cluster")
    if setup.isolation.user is not None:
        linux.unshare(linux.CLONE_NEWUSER)
        linux.map_user(setup.isolation.user, (0, 0))


def _prepare_code(setup: NodeSetup) -> None:
    for folder in (setup.work, setup.folder / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    checkpoint = setup.folder / "checkpoint"
    make_way(checkpoint)
    checkpoint.touch()
    argv = setup.prepare(setup.work)
    for process in setup.launch["processes"]:
        process["argv"] = argv


def _have_working_dir(setup: NodeSetup) -> None:
    cwd = Path(setup.launch["cwd"])
    if cwd.is_dir():
        return
    places = [setup.folder, *(Path(mount.path) for mount in setup.mounts)]
    if not any(cwd.is_relative_to(place) for place in places):
        raise EngineError(f"working_dir: there is no folder {cwd} on this machine")
    try:
        cwd.mkdir(parents=True)
    except OSError as error:
        raise EngineError(f"working_dir: cannot make {cwd}: {error.strerror}") from None
