"""The child's side of launching a node: from a fork of the supervisor to the node agent."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from muster.engines.local import mounts, namespaces, node_folders
from muster.engines.local.initial_state import InitialState, condition, contents
from muster.engines.local.namespaces import Isolation, mount_proc
from muster.engines.local.network import addresses
from muster.engines.local.place_code import overlay_folder
from muster.errors import EngineError, MusterError
from muster.frameworks.base import Network
from muster.node import messages
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.control_groups import NodeGroups
from muster.node.files import direct_output, empty_folder, remove_unless_regular
from muster.node.launch_message import LaunchMessage
from muster.node.messages import ExitReport, InvalidMessage
from muster.node.processes import close_others
from muster.plan.model import MountPlan, NodePlan
from muster.secrets import print_traceback
from muster.unix_account import UnixAccount, as_root, become


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
    #: Whether other nodes of the group can have these mounts, after they were emptied.
    fixed_mounts: bool
    #: The folder of each mount source.
    sources: Mapping[str, Path]
    #: Folders that no mount may hide.
    required: tuple[Path, ...]
    limits: NodeGroups | None
    #: Puts the code of the node that is launched into the working directory and returns the
    #: program's command line. Can be pickled.
    prepare_code: Callable[[Path, LaunchMessage], list[str]]
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
    #: The file for what the agent writes, if the supervisor's own output is not the run's.
    log: Path | None = None
    #: Whom the node's processes belong to; None: the user of this process.
    account: UnixAccount | None = None
    #: The files and folders below MUSTER_HOME that the node sees; empty: all of them.
    visible: tuple[Path, ...] = ()

    @property
    def reusable(self) -> bool:
        """Whether the agent can leave the node for another one: it has entered nothing that it
        cannot leave, as a user namespace or control groups, and has no more incarnations."""
        return (
            self.isolation.namespaces
            and self.isolation.user is None
            and self.account is None
            and self.network == "shared"
            and self.limits is None
            and self.disk is None
            and self.install is None
            and not self.launch.keep
        )


def fork_node(setup: NodeSetup, sock: socket.socket, following: socket.socket | None = None) -> int:
    """Fork the node's agent. Returns its pid in the supervisor's namespace.

    sock: the agent's end of the connection to the supervisor. following: the socket on which a
    reusable agent gets other nodes (`agent_pool`).
    """
    with _children_in_new_namespace() if setup.isolation.namespaces else nullcontext():
        pid = os.fork()
        if pid == 0:
            _run_child(setup, sock, following)
    return pid


#: Bytes of the setup of a node that follows another one. The kernel sends somewhat larger messages.
MAX_SETUP = 1 << 17


def _run_child(setup: NodeSetup, sock: socket.socket, following: socket.socket | None) -> NoReturn:
    """Run the agent in the forked child, and exit."""
    code = 0
    gc.freeze()  # what it shares with the supervisor is not examined, which would copy its pages
    try:
        if following is None:
            _leave_supervisor((sock.fileno(),))
            _run_node(setup, Channel(sock), ExitStack())
        else:
            _leave_supervisor((sock.fileno(), following.fileno()))
            _run_nodes(setup, sock, following)
    except BaseException:  # noqa: BLE001
        print_traceback()  # supervisor.log
        code = 70
    finally:
        os._exit(code)


@contextmanager
def _children_in_new_namespace() -> Iterator[None]:
    """The first child forked meanwhile is PID 1 of a PID namespace; later ones are in that of this
    process again."""
    # opened first: without it there would be no way back
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        namespaces.unshare(namespaces.CLONE_NEWPID)
        try:
            yield
        finally:
            namespaces.setns(own, namespaces.CLONE_NEWPID)
    finally:
        os.close(own)


def _run_nodes(setup: NodeSetup, sock: socket.socket, following: socket.socket) -> None:
    """Run a node, and then those that follow it, as long as each of them leaves nothing behind."""
    initial = InitialState()
    while True:
        channel = Channel(sock)
        with ExitStack() as held:
            if not _run_node(setup, channel, held):
                return
        if not initial.restore((sock.fileno(), following.fileno())):
            return
        channel.send(_idle(setup.launch.incarnation))
        channel.close()
        data, passed, _, _ = socket.recv_fds(following, MAX_SETUP, 1)
        if not passed:  # it is needed no more
            return
        import pickle  # only a shared supervisor's agents need it

        setup, sock = pickle.loads(data), socket.socket(fileno=passed[0])
        sock.set_inheritable(False)  # the node's programs must not have it


def _idle(incarnation: int) -> messages.Idle:
    agent, programs = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    words = {}
    with contextlib.suppress(OSError), open("/proc/self/io", "rb", buffering=0) as file:
        words = dict(line.split(b": ") for line in file.read().splitlines())
    return messages.Idle(
        incarnation,
        agent.ru_utime + agent.ru_stime,
        programs.ru_utime + programs.ru_stime,
        int(words.get(b"read_bytes", 0)),
        int(words.get(b"write_bytes", 0)),
    )


def _run_node(setup: NodeSetup, channel: Channel, held: ExitStack) -> bool:
    """Run the node to its end. Returns whether the agent can run another one.

    held: what to release after the node has ended, unless this process ends then.
    """
    if setup.log is not None:
        direct_output(setup.log)
    incarnation = setup.launch.incarnation
    try:
        held.callback(os.close, node_folders.lock(setup.folder))
        command = _set_up(setup)
        channel.send(messages.Joined(incarnation))
        channel.wait_for(messages.Start)
        _connect(setup)
    except (OSError, MusterError, InvalidMessage) as error:
        report = ExitReport(None, 0, "not_started", str(error))
        channel.send(messages.Ended(incarnation, report, kept=False))
        return False
    except EOFError:
        return False  # the supervisor has ended, and the node ends with it
    found = _shared(setup) if setup.launch.keep else ()
    return run_agent(channel, command, setup.launch, partial(_renew, setup, found))


def _shared(setup: NodeSetup) -> tuple[object, ...]:
    """What the replicas of an array that use a slot have in common, and each of them can change,
    apart from files."""
    if not namespaces.AVAILABLE:
        return ()
    # without namespaces, mounts and System V objects are the machine's
    return condition(), contents() if setup.isolation.namespaces else None


def _renew(
    setup: NodeSetup, found: tuple[object, ...], restart: messages.Restart | messages.Launch
) -> list[str] | None:
    """Empty the slot, which a replica of an array has used, for the next one. Returns the command
    line of its program; None if it needs a new agent: for an overlay or mounts of its own, or
    because the replica has changed what the next one would have of it.

    found: what `_shared` was before the first replica.
    """
    changed = os.path.exists(overlay_folder(setup.work)) or _shared(setup) != found
    if changed or not setup.fixed_mounts:
        return None
    launch = restart.launch
    os.chdir("/")
    if setup.isolation.namespaces:
        socket.sethostname(launch.hostname)
    node_folders.clear(setup.folder, setup.work)
    if setup.private_shm:
        empty_folder("/dev/shm")
    if setup.metadata is not None:
        node_folders.link_metadata(setup.metadata)
    command = _prepare_code(setup, launch)
    _ensure_working_dir(setup, launch)
    mounts.link_into_working_dir(setup.mounts, Path(launch.cwd), launch.environment_of(0))
    return command


def _leave_supervisor(keep: Collection[int]) -> None:
    """Close the supervisor's descriptors. Above all, the child must not hold the run's lock."""
    close_others(keep)
    signal.set_wakeup_fd(-1)
    os.setsid()


def _set_up(setup: NodeSetup) -> list[str]:
    """Do everything that is possible before the other nodes are known. Returns the program's
    command line."""
    node_folders.clear(setup.folder, setup.work)  # while nothing is mounted in it
    if setup.isolation.namespaces:
        namespaces.die_with_parent()
    if setup.install is not None and setup.account is None:
        setup.install()  # with the machine's network, and outside the node's limits
    if setup.limits is not None:
        with as_root():
            setup.limits.join()
    if setup.isolation.namespaces:
        _enter_namespaces(setup)
    else:
        mounts.make_parts(setup.mounts, setup.sources, setup.folder)
    command = _prepare_code(setup, setup.launch)
    _ensure_working_dir(setup, setup.launch)
    mounts.link_into_working_dir(
        setup.mounts, Path(setup.launch.cwd), setup.launch.environment_of(0)
    )
    return command


def _enter_namespaces(setup: NodeSetup) -> None:
    """Enter the node's namespaces and mount what only this node sees."""
    kinds = namespaces.CLONE_NEWNS | namespaces.CLONE_NEWUTS | namespaces.CLONE_NEWIPC
    namespaces.unshare(kinds | (namespaces.CLONE_NEWNET if setup.network != "shared" else 0))
    mount_proc()
    if setup.visible:
        with as_root():
            mounts.show_only(setup.folder.parents[3], setup.visible)
    socket.sethostname(setup.launch.hostname)
    if addresses.HOSTS.exists():
        namespaces.bind(str(setup.hosts), str(addresses.HOSTS))
    if setup.network == "cluster" and addresses.RESOLVER.exists():
        namespaces.bind(str(setup.resolver), str(addresses.RESOLVER))
    if setup.private_shm:
        namespaces.mount_tmpfs("/dev/shm", "1777")
    if setup.disk is not None:
        node_folders.mount_disk_image(setup.folder, setup.disk)
    if setup.launch.given:  # in memory, for the node alone
        from muster.node import given_files  # few nodes have any

        folder = f"{setup.folder}/{given_files.FOLDER}"
        os.makedirs(folder, exist_ok=True)
        namespaces.mount_tmpfs(folder, "755")
        given_files.write(setup.launch.given)
    mounts.bind_mounts(setup.mounts, setup.sources, setup.folder, setup.required)
    if setup.metadata is not None:
        node_folders.link_metadata(setup.metadata)


def _connect(setup: NodeSetup) -> None:
    """Configure the network, which the supervisor has connected by now, and become whom the node's
    processes belong to."""
    if setup.network != "shared":
        from muster.engines.local.network import bridge  # the supervisor has imported it

        with as_root():
            bridge.configure_node(setup.node.address, routed=setup.network == "cluster")
    if setup.account is not None:
        become(setup.account)
        namespaces.die_with_parent()  # that was forgotten with the former user
        if setup.install is not None:
            setup.install()  # it runs code that the owner has chosen
    if setup.isolation.user is not None:
        namespaces.unshare(namespaces.CLONE_NEWUSER)
        namespaces.map_user(setup.isolation.user, (0, 0))


def _prepare_code(setup: NodeSetup, launch: LaunchMessage) -> list[str]:
    if setup.short is not None:
        node_folders.make_private(setup.short)
        (setup.short / "tmp").symlink_to(setup.folder / "tmp")
    for folder in (setup.work, setup.folder / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    checkpoint = setup.folder / "checkpoint"
    remove_unless_regular(checkpoint)
    checkpoint.touch()
    return setup.prepare_code(setup.work, launch)


def _ensure_working_dir(setup: NodeSetup, launch: LaunchMessage) -> None:
    cwd = Path(launch.cwd)
    if cwd.is_dir():
        return
    places = [setup.folder, *(Path(mount.path) for mount in setup.mounts)]
    if not any(cwd.is_relative_to(place) for place in places):
        raise EngineError(f"working_dir: folder {cwd} not found on this machine")
    try:
        cwd.mkdir(parents=True)
    except OSError as error:
        raise EngineError(f"working_dir: cannot make {cwd}: {error.strerror}") from None
