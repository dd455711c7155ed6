"""Enter a running node from outside: its namespaces, its limits, its user.

The kernel lets the user who started the run, and root, enter by way of /proc/AGENT/ns. Without
namespaces a command is started with the node's environment and directory, and does not end with the
node.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from muster.engines.base import NodeCommand, RunningNode, Stdio
from muster.engines.local import namespaces
from muster.engines.local.child_process import ChildProcess
from muster.errors import EngineError
from muster.node import control_groups, launch_record, processes
from muster.node.launch_record import LaunchRecord
from muster.storage.home import RunDir
from muster.storage.owners import account_of_run
from muster.storage.run_files import rank_in
from muster.unix_account import UnixAccount, as_root, become

#: The namespaces to enter after the run's user namespace, which gives the right to. The PID
#: namespace is entered by the next child.
_KINDS = {
    "mnt": namespaces.CLONE_NEWNS,
    "uts": namespaces.CLONE_NEWUTS,
    "ipc": namespaces.CLONE_NEWIPC,
    "net": namespaces.CLONE_NEWNET,
    "pid": namespaces.CLONE_NEWPID,
}

#: Seconds for threads of a child that was just forked to end.
_THREADS_TIMEOUT = 1.0


@as_root()
def find_agents(folder: RunDir, supervisor: int) -> dict[int, int]:
    """The pid of the agent of each node that exists, by rank. supervisor: the run's.

    An agent is the child of the supervisor that has locked the folder of its slot.
    """
    locks = {}
    for node_folder in folder.nodes():
        with contextlib.suppress(OSError):  # it is not locked yet
            found = os.stat(node_folder / "place")
            locks[found.st_dev, found.st_ino] = node_folder
    agents = {}
    for pid in processes.children(supervisor):
        for descriptor in _descriptors(pid):
            with contextlib.suppress(OSError):  # closed meanwhile
                found = os.stat(descriptor)
                if (locked := locks.get((found.st_dev, found.st_ino))) is not None:
                    agents[rank_in(locked)] = pid
    return agents


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:  # it has ended, or belongs to another user
        return []


class Entry(Struct, frozen=True):
    """The way into one node: everything is opened, and nothing has been changed."""

    agent: int
    #: What the agent has launched; None if nothing yet.
    record: LaunchRecord | None
    #: (namespace descriptor, kind) in the order in which to enter.
    path: tuple[tuple[int, int], ...]
    #: The user, group and supplementary groups of the node's processes outside its namespaces.
    user: int
    group: int
    groups: tuple[int, ...]
    #: Whom the node's processes belong to; None: that user.
    account: UnixAccount | None = None

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor, _ in self.path:
            os.close(descriptor)


@as_root()
def find(node: RunningNode, kinds: Collection[str] = tuple(_KINDS)) -> Entry:
    """The way into these namespaces of a node. Raises EngineError if it cannot be entered."""
    if not os.path.isdir("/proc/self/ns"):
        raise EngineError(f"cannot enter node-{node.rank}: this system has no /proc/PID/ns")
    agent = find_agents(node.folder, node.supervisor).get(node.rank)
    if agent is None:
        raise EngineError(
            f"node-{node.rank} has no processes that are visible here; run the command as the user "
            "who started the run, or as root, and where it was started"
        )
    try:
        path = _open_path(node.supervisor, agent, kinds)
        account = account_of_run(node.folder)
        entry = Entry(agent, launch_record.read(agent), path, *_identity(agent), account)
    except OSError as error:
        raise EngineError(f"cannot enter node-{node.rank}: {error}") from None
    if find_agents(node.folder, node.supervisor).get(node.rank) != agent:
        entry.close()  # the agent may run a node of another run by now
        raise EngineError(f"cannot enter node-{node.rank}: it has just ended")
    return entry


def _identity(pid: int) -> tuple[int, int, tuple[int, ...]]:
    words = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        words[name] = [int(word) for word in value.split()] if name in _OF_USER else []
    return words["Uid"][1], words["Gid"][1], tuple(words["Groups"])


_OF_USER = ("Uid", "Gid", "Groups")


def _open_path(supervisor: int, agent: int, kinds: Collection[str]) -> tuple[tuple[int, int], ...]:
    """Open the namespaces to enter: those that this process is not in."""
    user = namespaces.CLONE_NEWUSER
    path = []
    for pid, name, kind in (
        (supervisor, "user", user),
        *((agent, name, _KINDS[name]) for name in kinds),
    ):
        if _differs(f"/proc/{pid}/ns/{name}", f"/proc/self/ns/{name}"):
            path.append((_open_namespace(pid, name), kind))
    # last, and only for programs of the node: the other namespaces belong to the run's user
    # namespace, where the submitter is root; in this one, the submitter is itself again
    if "pid" in kinds and _differs(f"/proc/{agent}/ns/user", f"/proc/{supervisor}/ns/user"):
        path.append((_open_namespace(agent, "user"), user))
    return tuple(path)


def _differs(namespace: str, other: str) -> bool:
    return os.readlink(namespace) != os.readlink(other)


def _open_namespace(pid: int, name: str) -> int:
    return os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)


def enter(entry: Entry) -> None:
    """Enter the node. The next child that this process forks is inside it, and has to become the
    account that the node belongs to, if there is one. Raises OSError.

    Called in a child that was forked for this, which cannot leave again.
    """
    if entry.path:
        _await_single_thread()
    try:
        control_groups.join_groups_of(entry.agent)
    except OSError as error:  # of version 2, another part of the hierarchy may be out of reach
        say(f"the node's CPU and memory limits do not apply to this command: {error}")
    path, user, group = list(entry.path), entry.user, entry.group
    enters_others = os.geteuid() == 0 != entry.user  # root enters a run of somebody else
    if enters_others and entry.account is None:
        os.setgroups(entry.groups)
        if path:
            namespaces.setns(*path.pop(0))
            user = group = 0  # what the submitter is in the run's user namespace
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    for descriptor, kind in path:
        namespaces.setns(descriptor, kind)


def _await_single_thread() -> None:
    """The kernel lets only a process with one thread enter a user namespace, and libraries start
    threads in children that are forked: OpenTelemetry's TracerProvider for a moment. Raises
    OSError."""
    deadline = time.monotonic() + _THREADS_TIMEOUT
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > deadline:
            text = "a library has started threads in the process that was forked for this"
            raise OSError(
                f"{text}; use `muster exec` and `muster open`, which have no such library"
            )
        time.sleep(0.001)


def run(node: RunningNode, command: NodeCommand, stdio: Stdio) -> ChildProcess:
    """See `Engine.run_in_node`."""
    entry = find(node)
    try:
        if entry.record is None:
            text = "has started no program yet, or an earlier version of Muster started it"
            raise EngineError(f"node-{node.rank} {text}")
        pid = os.fork()
        if pid == 0:
            _run_in_node(entry, entry.record, command, stdio)
    finally:
        entry.close()
    return ChildProcess(pid)


def _run_in_node(
    entry: Entry, record: LaunchRecord, command: NodeCommand, stdio: Stdio
) -> NoReturn:
    """In the child: enter the node, run the command there, and exit with its exit code."""
    code = processes.NOT_EXECUTABLE
    try:
        processes.block_forwarded_signals()
        files = (stdio.stdin, stdio.stdout, stdio.stderr)
        for number, descriptor in enumerate([os.dup(file.fileno()) for file in files]):
            os.dup2(descriptor, number)
        # the other end of a terminal, above all: its last copy has to be closed for the command
        # to be hung up
        processes.close_others({descriptor for descriptor, _ in entry.path})
        enter(entry)
        pid = os.fork()
        if pid == 0:
            _execute(record, command, entry.account)
        namespaces.die_with_parent()
        code = processes.wait_forwarding_signals(pid)
    except OSError as error:
        say(f"cannot enter the node: {error}")
    finally:
        os._exit(code)


def _execute(record: LaunchRecord, command: NodeCommand, account: UnixAccount | None) -> None:
    """In the child inside the node: become the command, or wait for it if it has a terminal. Does
    not return."""
    code = processes.NOT_EXECUTABLE
    try:
        if account is not None:
            become(account)
        if command.terminal:
            leader = os.fork()
            if leader:
                namespaces.die_with_parent(signal.SIGHUP)  # it ends the jobs of a shell then
                code = processes.wait_for_leader(leader, 0)
                return
            os.login_tty(0)
        namespaces.die_with_parent()
        os.chdir(command.cwd or record.cwd)
        env = {**record.environments[0], **command.env}
        processes.execute(command.argv, env)
    except processes.CannotStart as error:
        code = error.code
        say(str(error))
    except OSError as error:
        say(str(error))
    finally:
        os._exit(code)


def say(text: str) -> None:
    """Write a message to standard error, which may be closed."""
    with contextlib.suppress(OSError):
        os.write(2, b"muster: %s\n" % os.fsencode(text))
