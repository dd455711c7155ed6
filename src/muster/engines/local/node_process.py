"""The child's side of launching a node: from a fork of the supervisor to the node agent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from muster.engines.local import mounts, namespaces, node_folders
from muster.engines.local.limits import NodeLimits
from muster.engines.local.namespaces import Isolation, mount_proc
from muster.engines.local.network import addresses, bridge
from muster.errors import EngineError, MusterError
from muster.frameworks.base import Network
from muster.node import messages
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.files import remove_unless_regular
from muster.node.launch_message import LaunchMessage
from muster.node.messages import ExitReport, InvalidMessage
from muster.plan.model import MountPlan, NodePlan
from muster.secrets import print_traceback


class NodeSetup(Struct, frozen=True):
    """What the child needs to become the node's agent."""

    node: NodePlan
    isolation: Isolation
    network: Network
    #: The run's hosts file and resolv.conf.
    hosts: Path
    resolver: Path
    #: The node's folder, and the folder of its code.
    folder: Path
    work: Path
    mounts: tuple[MountPlan, ...]
    #: The folder of each mount source.
    sources: Mapping[str, Path]
    #: Folders that no mount may hide.
    required: tuple[Path, ...]
    limits: NodeLimits | None
    #: Puts the code into the working directory and returns the program's command line.
    prepare_code: Callable[[Path], list[str]]
    launch: LaunchMessage
    #: Whether the node gets a private /dev/shm.
    private_shm: bool
    #: The size (bytes) of the node's disk image; None if it has none.
    disk: int | None = None
    #: The run's metadata file, if the node sees it at the path that OCI documents.
    metadata: Path | None = None
    #: The node's folder with a short path, if any program uses it.
    short: Path | None = None
    #: Installs what the job needs, if it needs anything.
    install: Callable[[], None] | None = None


def fork_node(setup: NodeSetup, sock: socket.socket) -> int:
    """Fork the node's agent. Returns its pid in the supervisor's namespace.

    sock: the agent's end of the connection to the supervisor.
    """
    if setup.isolation.namespaces:
        namespaces.unshare(namespaces.CLONE_NEWPID)
    try:
        pid = os.fork()
        if pid == 0:
            _run_child(setup, sock)
    finally:
        if setup.isolation.namespaces:
            _fork_into_own_namespace()
    return pid


def _run_child(setup: NodeSetup, sock: socket.socket) -> NoReturn:
    """Run the agent in the forked child, and exit."""
    code = 0
    try:
        _become_node(setup, sock)
    except BaseException:  # noqa: BLE001
        print_traceback()  # supervisor.log
        code = 70
    finally:
        os._exit(code)


def _fork_into_own_namespace() -> None:
    """Undo unshare(CLONE_NEWPID): later children are in this process's PID namespace again."""
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        namespaces.setns(own, namespaces.CLONE_NEWPID)
    finally:
        os.close(own)


def _become_node(setup: NodeSetup, sock: socket.socket) -> None:
    _close_inherited(sock.fileno())
    channel = Channel(sock)
    incarnation = setup.launch.incarnation
    try:
        command = _set_up(setup)
        channel.send(messages.Joined(incarnation))
        channel.wait_for(messages.Start)
        _connect(setup)
    except (OSError, MusterError, InvalidMessage) as error:
        report = ExitReport(None, 0, "not_started", str(error))
        channel.send(messages.Ended(incarnation, report, kept=False))
        return
    except EOFError:
        return  # the supervisor has ended, and the node ends with it
    run_agent(channel, command, setup.launch)


def _close_inherited(keep: int) -> None:
    """Close the supervisor's descriptors. Above all, the child must not hold the run's lock."""
    listing = Path("/proc/self/fd")
    numbers = os.listdir(listing) if listing.is_dir() else map(str, range(3, 4096))
    for number in map(int, numbers):
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):  # the listing's own descriptor
                os.close(number)
    signal.set_wakeup_fd(-1)
    os.setsid()


def _set_up(setup: NodeSetup) -> list[str]:
    """Do everything that is possible before the other nodes are known. Returns the program's
    command line."""
    node_folders.lock(setup.folder)
    node_folders.clear(setup.folder, setup.work)  # while nothing is mounted in it
    if setup.isolation.namespaces:
        namespaces.die_with_parent()
    if setup.install is not None:
        setup.install()  # with the machine's network, and outside the node's limits
    if setup.limits is not None:
        setup.limits.join()
    if setup.isolation.namespaces:
        _enter_namespaces(setup)
    if setup.short is not None:
        node_folders.make_private(setup.short)
        (setup.short / "tmp").symlink_to(setup.folder / "tmp")
    command = _prepare_code(setup)
    _ensure_working_dir(setup)
    mounts.link_into_working_dir(
        setup.mounts, Path(setup.launch.cwd), setup.launch.environment_of(0)
    )
    return command


def _enter_namespaces(setup: NodeSetup) -> None:
    """Enter the node's namespaces and mount what only this node sees."""
    kinds = namespaces.CLONE_NEWNS | namespaces.CLONE_NEWUTS | namespaces.CLONE_NEWIPC
    namespaces.unshare(kinds | (namespaces.CLONE_NEWNET if setup.network != "shared" else 0))
    mount_proc()
    socket.sethostname(setup.node.hostname)
    if addresses.HOSTS.exists():
        namespaces.bind(str(setup.hosts), str(addresses.HOSTS))
    if setup.network == "cluster" and addresses.RESOLVER.exists():
        namespaces.bind(str(setup.resolver), str(addresses.RESOLVER))
    if setup.private_shm:
        flags = namespaces.MS_NOSUID | namespaces.MS_NODEV
        namespaces.mount("tmpfs", "/dev/shm", "tmpfs", flags, "mode=1777")
    if setup.disk is not None:
        node_folders.mount_disk_image(setup.folder, setup.disk)
    mounts.bind_mounts(setup.mounts, setup.sources, setup.folder, setup.required)
    if setup.metadata is not None:
        node_folders.link_metadata(setup.metadata)


def _connect(setup: NodeSetup) -> None:
    """Configure the network, which the supervisor has connected by now, and become the submitter's
    user again."""
    if setup.network != "shared":
        bridge.configure_node(setup.node.address, routed=setup.network == "cluster")
    if setup.isolation.user is not None:
        namespaces.unshare(namespaces.CLONE_NEWUSER)
        namespaces.map_user(setup.isolation.user, (0, 0))


def _prepare_code(setup: NodeSetup) -> list[str]:
    for folder in (setup.work, setup.folder / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    checkpoint = setup.folder / "checkpoint"
    remove_unless_regular(checkpoint)
    checkpoint.touch()
    return setup.prepare_code(setup.work)


def _ensure_working_dir(setup: NodeSetup) -> None:
    cwd = Path(setup.launch.cwd)
    if cwd.is_dir():
        return
    places = [setup.folder, *(Path(mount.path) for mount in setup.mounts)]
    if not any(cwd.is_relative_to(place) for place in places):
        raise EngineError(f"working_dir: folder {cwd} not found on this machine")
    try:
        cwd.mkdir(parents=True)
    except OSError as error:
        raise EngineError(f"working_dir: cannot make {cwd}: {error.strerror}") from None
