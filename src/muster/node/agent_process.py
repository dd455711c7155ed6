"""An agent in a process of its own, as a node server starts it."""

from __future__ import annotations

import os
import signal
import socket
import sys
from functools import partial
from typing import List, Mapping, Sequence, Union

from muster.node import clock, messages
from muster.node.agent import run_agent
from muster.node.channel import Channel
from muster.node.code import NODE, unpack
from muster.node.control_groups import NodeGroups
from muster.node.files import empty_folder, remove_tree, replace_file
from muster.node.hosts_file import HostsFile
from muster.node.incarnation_files import open_rank_output
from muster.node.leftovers import hold_agent_lock
from muster.node.processes import close_others
from muster.node.tree_streams import SENT

#: Seconds that an agent gets to end its node.
_END_TIMEOUT = 10.0


class AgentProcess:
    """A running agent, for the process that has started it.

    channel: to the agent; its socket is non-blocking.
    """

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        self.channel = channel
        #: Whether its last incarnation has ended, and it waits for another one.
        self.kept = False
        #: Why the channel was closed; "" while it is open.
        self.why_closed = ""
        #: When to kill it; None: never.
        self.kill_at: float | None = None

    @classmethod
    def start(
        cls,
        folder: str,
        archives: str,
        launch: messages.Launch,
        groups: NodeGroups,
        held: Sequence[int] = (),
        hosts: HostsFile | None = None,
    ) -> AgentProcess:
        """Start the agent of a new node. folder: the node server's. archives: that with the
        archives of code. groups: what it joins. held: descriptors that stay open in the agent.
        hosts: see `prepare`. Raises OSError."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            _run_child(folder, archives, launch, theirs, groups, held, hosts)
        theirs.close()
        return cls(pid, Channel(ours))

    @property
    def closed(self) -> bool:
        """Whether the channel was closed."""
        return bool(self.why_closed)

    @property
    def listens(self) -> bool:
        """Whether the channel is open at both ends. The agent's is closed some time before the end
        of its process."""
        return not self.why_closed and not self.channel.closed

    def close(self, why: str) -> None:
        """Close the channel: the agent ends, with all processes of its node. why: for people."""
        if not self.why_closed:
            self.why_closed = why
            self.kill_at = clock.now() + _END_TIMEOUT
        self.channel.close()

    def expect_end(self) -> None:
        """It was told to end its incarnation at once: kill it if it does not, such as one that is
        stopped."""
        if self.kill_at is None:
            self.kill_at = clock.now() + _END_TIMEOUT

    def ended(self) -> None:
        """Its incarnation has ended."""
        if not self.why_closed:
            self.kill_at = None

    def kill_if_due(self) -> None:
        """Kill it if it was to end some time ago, such as one that is stopped. What it leaves are
        children of this process, if that is a subreaper."""
        if self.kill_at is not None and clock.now() >= self.kill_at:
            self.kill_at = None
            os.kill(self.pid, signal.SIGKILL)  # not reaped yet: the pid is its own


def _run_child(
    folder: str,
    archives: str,
    launch: messages.Launch,
    sock: socket.socket,
    groups: NodeGroups,
    held: Sequence[int],
    hosts: HostsFile | None,
) -> None:
    """Run the agent in the forked child, and exit."""
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        close_others((sock.fileno(), *held))
        os.setsid()
        _run(folder, archives, launch, Channel(sock), groups, hosts)
        code = 0
    except BaseException:  # noqa: BLE001
        import traceback  # few fail

        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)


def _run(
    folder: str,
    archives: str,
    launch: messages.Launch,
    channel: Channel,
    groups: NodeGroups,
    hosts: HostsFile | None,
) -> None:
    try:
        hold_agent_lock(folder)  # until this process ends
        groups.join()
        _set_up(folder, archives, launch, hosts)
        channel.send(messages.Joined(launch.incarnation))
        channel.wait_for(messages.Start)
    except (OSError, ValueError) as error:  # InvalidMessage, or a NUL in a path
        report = messages.ExitReport(None, 0, "not_started", str(error))
        channel.send(messages.Ended(launch.incarnation, report, kept=False))
    except EOFError:
        return  # the server has ended, and the node ends with it
    else:
        renew = partial(_renew, folder, archives, hosts)
        take_outputs = partial(_take_outputs, folder, archives)
        run_agent(channel, launch.command, launch.launch, renew, take_outputs)


def _set_up(folder: str, archives: str, launch: messages.Launch, hosts: HostsFile | None) -> None:
    """Provide what a new node needs, and nothing else. Raises OSError, ValueError."""
    for path in launch.empty:
        empty_folder(path)
    remove_tree(os.path.join(folder, NODE))
    prepare(launch, hosts)
    if launch.code is not None:
        unpack(archives, launch.code)
    if launch.launch.given:
        from muster.node import given_files  # few nodes have any

        given_files.write(launch.launch.given)
    if launch.mounts:
        from muster.node.mounts import set_up  # few nodes have any

        set_up(launch.mounts, archives, os.path.join(folder, SENT))
    if launch.outputs is not None:
        _take_outputs(folder, archives, launch.outputs)


def _take_outputs(folder: str, archives: str, outputs: messages.Outputs) -> None:
    """Unpack the outputs that a launch brings. Raises OSError."""
    from muster.node.outputs import unpack as unpack_outputs  # few launches have any

    unpack_outputs(outputs, archives, os.path.join(folder, SENT))


def _renew(
    folder: str,
    archives: str,
    hosts: HostsFile | None,
    launch: Union[messages.Restart, messages.Launch],
) -> List[str] | None:
    """Empty the slot, which another node has used, for the next one. Returns the command line of
    its program. Raises OSError, ValueError."""
    if not isinstance(launch, messages.Launch):
        return None  # what the node needs is not known
    os.chdir("/")
    _set_up(folder, archives, launch, hosts)
    return list(launch.command)


def prepare(launch: messages.Launch, hosts: HostsFile | None = None) -> None:
    """Make the folders and files of a launch, its output files included: who follows these finds
    them. hosts: gets the names that are among these files; None: none does. Raises OSError."""
    for path in launch.folders:
        os.makedirs(path, 0o700, exist_ok=True)
    write_files(launch.files, launch.packed)
    if hosts is not None:
        hosts.update()
    outputs = [(process.stdout, process.stderr) for process in launch.launch.processes]
    outputs += [(service.stdout, service.stderr) for service in launch.launch.services]
    for files in (*outputs, *launch.launch.ranks):
        for path in files:
            _make_output(path, launch.sizes.get(path, 0), empty=launch.launch.of_array)


def _make_output(path: str, size: int, *, empty: bool) -> None:
    """Make an output file of this size at least. empty: whether what is in it was written by a node
    that has used the slot before, or by an earlier incarnation, and is not output of this one.
    Raises OSError."""
    descriptor = open_rank_output(path)
    try:
        if path != os.devnull and empty:
            os.ftruncate(descriptor, 0)
        if path != os.devnull and os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def write_files(files: Mapping[str, str], packed: Mapping[str, str]) -> None:
    """Write files, each atomically, readable for their owner only. files: path -> content. packed:
    the same, as `packed_text` packs it. Raises OSError, ValueError."""
    for path, content in files.items():
        replace_file(path, content.encode(), 0o600)
    if packed:
        from muster.node.packed_text import unpack  # small runs have none

        for path, content in packed.items():
            replace_file(path, unpack(content), 0o600)
