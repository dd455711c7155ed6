"""The node server: the process that stands for a node on its host.

It outlives supervisors and connections. A supervisor connects, or is dialed, and has the server
start the node's agent, which starts the programs (`node.agent`). While nobody is connected, the
programs continue. What the agent says is kept, in the conversation with the supervisor
(`node.link`) and in the journal: another supervisor, or a server that takes over from one that was
killed, is told of it.

There is at most one agent, and it has at most one incarnation of the node in progress. The end of
one is told when none of its processes is left, however it ended. What commands in the node have
started (`node.command_streams`) ends before the next node starts, or with the server.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import socket
import sys
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Sequence,
    Tuple,
)

from muster.node import clock, machine, messages, processes
from muster.node.agent_process import AgentProcess, prepare, write_files
from muster.node.code import Archives, output_archives
from muster.node.command_streams import Program
from muster.node.connection import Connection, Transport
from muster.node.control_groups import Amounts, NodeGroups
from muster.node.counters import read_idle_node
from muster.node.environments import Environments
from muster.node.free_ports import PortKeeper
from muster.node.greeting import (
    PROTOCOL,
    SERVER_TIMEOUT,
    AgentHello,
    Refusal,
    attach,
    conversation,
    supervisor_hello,
)
from muster.node.host_programs import inherited
from muster.node.hosts_file import HostsFile
from muster.node.journal import Journal
from muster.node.leftovers import mark
from muster.node.link import Link
from muster.node.messages import ExitReport, Message
from muster.node.mounts import find_folders
from muster.node.provisions import CannotProvide, Provisions
from muster.node.stream_services import StreamServices
from muster.node.streams import Streams
from muster.node.tree_streams import SENT

if TYPE_CHECKING:
    from muster.node.dialer import Dialer
    from muster.node.log_copy import LogCopy

#: The variable with the name of the host in the infrastructure that has started the server, if it
#: has another one there.
HOST = "MUSTER_NODE_HOST"
#: Seconds for which another process may connect and say nothing.
_GREETING_TIMEOUT = 30.0
#: Seconds that a server which leaves waits for the supervisor to acknowledge what it has said.
_FAREWELL_TIMEOUT = 5.0
#: Seconds of silence after which a connection is pinged; after SERVER_TIMEOUT it is closed.
#: Supervisors ping and close earlier, so that normally only one end does.
_PING_AFTER = 30.0
#: The longest poll, in milliseconds; and while the isolation timeout runs, as poll does not count
#: the time for which the machine is suspended.
_LONGEST_WAIT, _LOOK_EVERY = 86_400_000, 1000
#: Why a node has ended whose server was terminated by what has started it.
_TERMINATED = "its node server was told to end, as when a job is canceled, preempted or out of time"
#: Seconds for which the end of a program by a SIGTERM that nobody asked for is not reported: what
#: ends the node may send it to the program first, and to the server next.
_CAUSE_TIMEOUT = 0.5
_SIGTERM_EXIT = 128 + signal.SIGTERM
#: The exit code of a server that has left as nobody has decided what follows the failure of its
#: program: the first one that no program of the system has (sysexits.h ends at 78). Whatever the
#: program's own is, the infrastructure finds it by this code alone.
UNDECIDED = 79
#: The most characters of what a program has said about its failure in `exit_message`.
_MAX_MESSAGE = 500
#: Pause after a failed accept, in seconds.
_ACCEPT_PAUSE = 1.0


class Identity(NamedTuple):
    """What a node server says of itself."""

    #: Muster's version.
    version: str
    run_id: str
    rank: int


class Limits(NamedTuple):
    """When a server without contact to a supervisor ends its node, in seconds; None: never."""

    #: After this time without contact, it kills its processes and leaves: a supervisor that cannot
    #: reach it may start another node in its place then.
    isolation: float | None = None
    #: This long after its program has failed by itself, if there is no contact, it exits with
    #: UNDECIDED, so that the infrastructure that started it may restart it. It waits on after a
    #: success, as the outputs are to be copied, and after a stop.
    decision: float | None = None


class NodeServer:
    """Serves one node until it is told to leave.

    folder: its own. archives: those of code. listener: a listening socket for supervisors. wake: a
    descriptor that becomes readable with every signal. modules, short: see `messages.HostFacts`.
    environments: those with packages. groups: what agents and commands join. amounts: what the node
    may use. held: descriptors that agents keep open as well. dialer: dials the supervisor; None: it
    is only dialed. log_copy: copies the output of programs; None: nothing does. hosted: see
    `serve.Settings`. hosts: gets the names of nodes; None: nothing does.
    """

    def __init__(
        self,
        identity: Identity,
        folder: str,
        archives: Archives,
        listener: socket.socket,
        journal: Journal,
        wake: int,
        limits: Limits,
        modules: str,
        short: str,
        environments: Environments,
        groups: NodeGroups,
        amounts: Amounts,
        held: Sequence[int] = (),
        dialer: Dialer | None = None,
        log_copy: LogCopy | None = None,
        *,
        hosted: bool = False,
        hosts: HostsFile | None = None,
    ) -> None:
        self._hosts = hosts
        self._dialer = dialer
        self._log_copy = log_copy
        self._hosted = hosted or dialer is not None
        self._dialed: Connection | None = None  # the last connection that the dialer has made
        self._identity = identity
        self._folder = folder
        self._listener = listener
        self._journal = journal
        self._wake = wake
        self._limits = limits
        self._held = held
        self._modules, self._short = modules, short
        self._provisions = Provisions(archives, environments, self._tell_installing)
        self._groups, self._amounts = groups, amounts
        self._oom_kills = 0  # processes that were killed at its memory limit before
        self._ports = PortKeeper(os.path.join(folder, "ports"))
        self._process = os.urandom(8).hex()
        self._number = 0  # of the last connection
        self._accept_at = 0.0  # connections are not accepted before
        self._greeting: Dict[Connection, float] = {}  # connection -> when it is given up
        self._connection: Connection | None = None
        self._services: StreamServices | None = None  # of the connection
        self._streams: Streams | None = None  # of the connection
        self._launched: messages.Launch | None = None  # the newest incarnation
        self._program: Program | None = None  # of that, while it runs
        self._heard = clock.now()  # when a supervisor was last there, as far as is known
        self._pinged = self._heard  # when it was last asked for a sign of life
        self._link: Link | None = None
        self._turn = 0
        self._agent: AgentProcess | None = None
        self._why_lost = ""  # why the node's end is not known from its agent; "" if it is
        self._lost_reason = "node_lost"  # the reason of that end
        self._next: messages.Launch | None = None  # waits for the end of all processes before
        self._killed = False  # whether processes were killed that have not ended yet
        self._restarting: messages.Launch | None = None  # not yet answered by the kept agent
        self._stopping = False  # whether that incarnation was to end
        self._ended = clock.now()  # when the newest incarnation ended
        self._terminated = False
        #: Whether what has started it, such as a batch system, has had it end with its node.
        self._was_terminated = False
        #: The end of a node whose cause may follow, and when it is reported without.
        self._unexplained: Tuple[messages.Ended, float] | None = None
        self._code = 0  # the exit code
        #: Why it has left with UNDECIDED, as a line; "" if it has not.
        self.exit_message = ""
        #: Whether its folder is not needed any more: the supervisor has had it leave.
        self.removes_folder = False
        self._leave_at: float | None = None  # when to leave even if nobody has heard of the end

    def run(self) -> int:
        """Serve. Returns the exit code, see UNDECIDED. The connections stay open until `close`."""
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())
        while True:
            self._step(self._wait())
            if self._has_left():
                for connection in self._connections():
                    connection.step()  # the last acknowledgment
                return self._code

    def close(self) -> None:
        """Close the connections, after `run`: the supervisor takes that for the end of the server,
        which has removed its files by then."""
        for connection in self._connections():
            connection.close()

    def _terminate(self) -> None:
        """For a signal handler: the loop does what follows, between two steps."""
        self._terminated = True

    def _has_left(self) -> bool:
        """Whether it can exit: it was told to leave, no process is left, and the supervisor knows
        of the end, or has had enough time."""
        if self._leave_at is None or not self._is_empty():
            return False
        told = self._connection is None or self._link is None or not self._link.unacknowledged
        return told or clock.now() >= self._leave_at

    def _decision_due(self) -> float | None:
        """When it exits if no supervisor decides by then what follows the failure of its program;
        None: never."""
        limit = self._limits.decision
        if limit is None or self._connection is not None or self._leave_at is not None:
            return None
        if not self._is_idle() or not self._has_failed():
            return None
        return max(self._heard, self._ended) + limit

    def _has_failed(self) -> bool:
        """Whether the newest incarnation has failed by itself."""
        last = self._journal.said[-1] if self._journal.said else None
        if not isinstance(last, messages.Ended) or self._stopping:
            return False
        return last.report.exit_code != 0

    def _is_idle(self) -> bool:
        return self._journal.ended and not self._why_lost and self._next is None

    def _is_empty(self) -> bool:
        """Whether no process of the node is left, and that was told."""
        return self._agent is None and not self._why_lost and not self._killed

    # --- waiting

    def _wait(self) -> List[int]:
        """The descriptors that are ready."""
        poll = select.poll()
        if clock.now() >= self._accept_at:
            poll.register(self._listener.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._agent is not None and self._agent.listens:
            writes = select.POLLOUT if self._agent.channel.unsent else 0
            poll.register(self._agent.channel.fileno(), select.POLLIN | writes)
        interests = [connection.interest() for connection in self._connections()]
        if self._services is not None:
            interests.append(self._services.interest())
        if self._log_copy is not None:
            interests.append(self._log_copy.interest())
        if self._dialer is not None:
            interests.append(self._dialer.interest())
        for interest in interests:
            for descriptor, events in interest.items():
                poll.register(descriptor, events)
        return [descriptor for descriptor, _ in poll.poll(self._timeout())]

    def _connections(self) -> List[Connection]:
        current = [] if self._connection is None else [self._connection]
        return [*self._greeting, *current]

    def _timeout(self) -> float | None:
        """Milliseconds until something is due; None for never."""
        due = min(self._deadlines(), default=None)
        if due is None:
            return None
        left = max(0.0, (due - clock.now()) * 1000 + 1)
        # poll does not count the time for which the machine is suspended
        isolated = self._limits.isolation is not None and self._connection is None
        return min(left, _LOOK_EVERY if isolated else _LONGEST_WAIT)

    def _deadlines(self) -> Iterator[float]:
        yield from self._greeting.values()
        if self._dialer is not None and self._dialer.due is not None:
            yield self._dialer.due
        if clock.now() < self._accept_at:
            yield self._accept_at
        if self._leave_at is not None and self._is_empty():
            yield self._leave_at
        if self._agent is not None and self._agent.kill_at is not None:
            yield self._agent.kill_at
        if self._unexplained is not None:
            yield self._unexplained[1]
        if self._services is not None and (left := self._services.timeout()) is not None:
            yield clock.now() + left
        if self._log_copy is not None and (left := self._log_copy.timeout()) is not None:
            yield clock.now() + left
        if self._connection is not None:
            answered = self._connection.answered
            yield self._heard + (_PING_AFTER if answered else SERVER_TIMEOUT)
            return
        if self._limits.isolation is not None and self._leave_at is None:
            yield self._heard + self._limits.isolation
        if (due := self._decision_due()) is not None:
            yield due

    # --- steps

    def _step(self, ready: List[int]) -> None:
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._listener.fileno() in ready:
            self._accept()
        for connection in list(self._greeting):
            self._greet(connection)
        if self._connection is not None:
            self._talk(self._connection)
        if self._agent is not None and self._agent.listens:
            self._agent.channel.flush()
            self._hear(self._agent)
        self._provide()
        if self._terminated:
            self._terminated = False
            self._end_gently()
        self._explain()
        self._end_if_isolated()
        if (due := self._decision_due()) is not None and clock.now() >= due:
            last = self._journal.said[-1]
            assert isinstance(last, messages.Ended), "it has failed"
            why = "no supervisor has decided what follows"
            self._code = UNDECIDED
            self.exit_message = "%s: %s" % (why, _failure(last.report))
            self._leave(why)
        if self._agent is not None:
            self._agent.kill_if_due()
        self._reap()
        if self._services is not None:
            self._services.step(self._program)
        if self._log_copy is not None:
            self._log_copy.step()
        if self._dialer is not None:
            self._dial(self._dialer)

    def _reap(self) -> None:
        """Reap processes, and end those that a killed agent has left."""
        for pid, status in processes.ended_children():
            if self._agent is not None and pid == self._agent.pid:
                self._agent_ended(self._agent, status)
            elif self._provisions.reaped(pid):
                self._provide()
            elif self._services is not None:
                self._services.reaped(pid, status)
        wanted = self._why_lost or self._next is not None or self._leave_at is not None
        waits = self._agent is None and wanted
        self._killed = bool(waits and processes.kill_children(()))
        if not waits or self._killed:
            return  # or their ends wake this process
        if self._why_lost:
            why, self._why_lost = self._why_lost, ""
            self._say_ended(self._lost_reason, why)
        elif self._next is not None:
            launch, self._next = self._next, None
            self._start(launch)

    def _end_if_isolated(self) -> None:
        limit = self._limits.isolation
        if limit is None or self._connection is not None or self._leave_at is not None:
            return
        if clock.now() >= self._heard + limit:
            self._leave("it had no contact with a supervisor for %g s" % limit)

    def _end_node(self, why: str) -> None:
        """End the node at once."""
        if self._provisions.waiting is not None:
            self._give_up_launch(ExitReport(None, 0, "node_lost", why))
        if self._agent is not None:
            self._agent.close(why)

    # --- connections

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:  # it is gone already
            return
        except OSError:  # such as too many open files: the listener stays readable
            self._accept_at = clock.now() + _ACCEPT_PAUSE
            return
        self._begin_greeting(sock, {})

    def _dial(self, dialer: Dialer) -> None:
        """Continue to dial the supervisor, unless there is contact, or may be soon."""
        wanted = self._connection is None and self._dialed not in self._greeting
        transport = dialer.step(wanted=wanted)
        if transport is not None:
            self._dialed = self._begin_greeting(transport, {"token": dialer.token})

    def _begin_greeting(self, transport: Transport, proof: Mapping[str, Any]) -> Connection:
        """Say hello on a new connection. proof: what is said besides (`greeting.Claim`)."""
        self._number += 1
        connection = Connection(transport)
        connection.say({**self._hello()._asdict(), **proof})
        self._greeting[connection] = clock.now() + _GREETING_TIMEOUT
        return connection

    def _hello(self) -> AgentHello:
        link = self._link
        return AgentHello(
            PROTOCOL,
            self._identity.version,
            os.environ.get(HOST) or socket.gethostname(),
            self._identity.run_id,
            self._identity.rank,
            self._process,
            self._number,
            "" if link is None else link.session,
            0 if link is None else link.received,
        )

    def _greet(self, connection: Connection) -> None:
        """Continue with a connection on which nobody is talked to yet, or which was refused."""
        refused = connection.hello is not None
        connection.step()
        if connection.ended or clock.now() >= self._greeting[connection]:
            del self._greeting[connection]
            if self._dialer is not None and connection is self._dialed:
                self._dialer.failed(connection.ended or "it does not answer")
            connection.close()
        elif connection.hello is not None and not refused:
            self._answer(connection)

    def _answer(self, connection: Connection) -> None:
        assert connection.hello is not None
        try:
            hello = supervisor_hello(connection.hello, self._hello(), self._turn)
            link = conversation(self._link, hello)
            attach(link, connection, hello.received)
        except Refusal as why:
            connection.refuse(str(why))
            return
        del self._greeting[connection]
        self._disconnect()
        begins = link is not self._link
        self._connection, self._link, self._turn = connection, link, hello.turn
        self._heard = clock.now()
        if self._dialer is not None:
            self._dialer.reached()
        self._streams = Streams(supervisor=False, compress=hello.compress)
        self._services = StreamServices(self._streams, os.path.join(self._folder, SENT))
        connection.talk(link, self._streams)
        if begins:
            link.send(self._facts())
            for message in self._journal.said:
                link.send(message)

    def _facts(self) -> messages.HostFacts:
        newest = self._journal.incarnation
        return host_facts(self._folder, newest, self._modules, self._short, self._amounts)

    def _talk(self, connection: Connection) -> None:
        answered = connection.answered
        received = connection.step()
        now = clock.now()
        # what arrives now may have been sent long ago, if this machine was suspended
        late = now >= self._heard + SERVER_TIMEOUT
        if received and not late:
            self._heard = now
        elif connection.answered and not answered:
            self._heard = max(self._heard, self._pinged)  # the answer was sent after that
        for message in received:
            self._handle(message)
        if connection.refusal:
            connection.step()  # tells the supervisor why, which need not close it
        if connection.ended or connection.refusal or late:
            self._disconnect()
            if not late:  # else contact was lost when something was last heard
                self._heard = now
        elif now >= self._heard + _PING_AFTER and connection.answered:
            connection.ping()
            self._pinged = now

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._services is not None:
            self._services.close()
        self._provisions.disconnect()
        self._connection = self._services = self._streams = None

    def _handle(self, message: Message) -> None:
        """Do what the supervisor requests."""
        if isinstance(message, messages.Launch):
            self._launch(message)
        elif isinstance(message, messages.WriteFiles):
            self._write_files(message)
        elif isinstance(message, messages.ReservePorts):
            self._tell(self._ports.reserve(message))
        elif isinstance(message, messages.FindFolders):
            self._tell(find_folders(message))
        elif isinstance(message, messages.Release):
            if self._agent is not None and self._agent.kept:
                self._agent.close("the node was given up")
        elif isinstance(message, messages.Leave):
            self.removes_folder = not message.keep
            self._leave("the run has left the node")
        elif self._provisions.waiting is not None or self._next is not None:
            if isinstance(message, (messages.Stop, messages.Kill)):
                self._end_before_start(message.incarnation)
        elif self._agent is not None and not self._agent.closed:
            self._pass_on(self._agent, message)

    def _end_before_start(self, incarnation: int) -> None:
        """End an incarnation that waits for its archives, or for the end of the node before."""
        number = int(signal.SIGTERM)
        report = ExitReport(128 + number, number, "exit")
        launch = self._next
        if self._provisions.waiting is not None:
            if incarnation == self._journal.incarnation:
                self._give_up_launch(report)
        elif launch is not None and launch.incarnation == incarnation:
            self._next, self._stopping = None, True
            if incarnation == self._journal.incarnation or self._begin(launch):
                self._say(messages.Ended(incarnation, report, kept=False))

    def _pass_on(self, agent: AgentProcess, message: Message) -> None:
        """Pass a message on to the agent."""
        agent.channel.send(message)
        if isinstance(message, messages.Kill) and message.incarnation == self._journal.incarnation:
            agent.expect_end()
        if isinstance(message, (messages.Stop, messages.Kill)):
            newest = self._journal.incarnation
            if message.incarnation == newest:
                self._stopping = True
                # if it waits for its start, it sees both, and ends without starting anything
                agent.channel.send(messages.Start(newest))

    def _say(self, message: Message) -> None:
        """Say something of the newest incarnation."""
        self._restarting = None
        self._drop_outputs(message)
        self._journal.add(message)
        if isinstance(message, messages.Started):
            self._program = self._started_program()
        elif isinstance(message, messages.Ended):
            self._ended = clock.now()
            self._leave_program(kept=message.kept)
            if self._log_copy is not None:
                self._log_copy.ended()
        self._tell(message)

    def _tell(self, message: Message) -> None:
        """Tell the supervisor, if there is a conversation with one."""
        if self._link is not None:
            self._link.send(message)

    def _tell_installing(self, incarnation: int) -> None:
        self._tell(messages.Installing(incarnation))

    def _drop_outputs(self, message: Message) -> None:
        """Do not keep the archives of a node's outputs that it has unpacked."""
        if self._launched is None or not output_archives(self._launched):
            return
        if isinstance(message, (messages.Joined, messages.Started, messages.Ended)):
            self._provisions.keep_archives_of(self._launched, outputs=False)

    def _started_program(self) -> Program | None:
        if self._agent is None or self._launched is None:
            return None
        launch = self._launched.launch
        return Program(launch.environment_of(0), launch.cwd, launch.address, self._agent.pid)

    def _leave_program(self, *, kept: bool) -> None:
        """The node has ended, or it was kept and is gone now."""
        self._program = None
        if self._services is not None:
            self._services.node_ended(kept=kept)

    def _say_ended(self, reason: str, text: str) -> None:
        """Say how the newest incarnation ended, if its agent has not."""
        report = ExitReport(None, 0, reason, text)
        terminated = self._was_terminated and reason == "node_lost"
        ended = messages.Ended(self._journal.incarnation, report, kept=False, terminated=terminated)
        self._say(ended)

    # --- the node

    def _launch(self, launch: messages.Launch) -> None:
        old = launch.incarnation <= self._journal.incarnation
        if old or not self._is_idle() or self._leave_at is not None:
            return
        if self._agent is None and not processes.kill_children(()):
            self._start(launch)
        elif self._agent is not None and self._agent.kept and not self._agent.closed:
            self._restart(self._agent, launch)
        else:
            self._next = launch

    def _takes_slot(self, launch: messages.Launch) -> bool:
        """Whether the agent of another node can run this one: it has all that is unpacked for it.
        What is not needed any more is removed."""
        try:
            lacks = self._provisions.lacks(launch, has_code=False)
            self._provisions.keep_archives_of(launch, outputs=True)
        except (CannotProvide, OSError):  # a new agent says what is wrong
            return False
        return not lacks

    def _start(self, launch: messages.Launch) -> None:
        """Start a new node."""
        launch = self._marked(launch)
        begun = launch.incarnation == self._journal.incarnation
        if not begun and not self._begin(launch):
            return
        self._stopping = False
        try:
            lacks = self._provisions.lacks(launch, has_code=False)
            self._provisions.keep_archives_of(launch, outputs=True)
        except (CannotProvide, OSError) as error:
            self._say_ended("not_started", "the code: %s" % error)
            return
        if lacks or launch.environment is not None:
            self._provisions.wait(launch, has_code=False)
            self._provide()
        else:
            self._start_agent(launch)

    def _start_agent(self, launch: messages.Launch) -> None:
        """Start an agent, or have the one that was kept restart its node."""
        if self._agent is not None:
            self._restart_agent(self._agent, launch)
            return
        try:
            place = self._provisions.archives
            held = (*self._held, *self._provisions.held)
            self._agent = AgentProcess.start(
                *(self._folder, place, launch, self._groups, held, self._hosts)
            )
        except OSError as error:
            self._say_ended("not_started", "cannot start an agent: %s" % error.strerror)

    def _provide(self) -> None:
        """Continue with what a launch waits for."""
        try:
            launch = self._provisions.step(self._streams)
        except CannotProvide as error:
            self._give_up_launch(ExitReport(None, 0, "not_started", str(error)))
            return
        if launch is not None:
            self._start_agent(launch)

    def _give_up_launch(self, report: ExitReport) -> None:
        """The launch that waits for what it needs ends."""
        self._provisions.stop()
        kept = self._agent is not None and self._agent.kept
        self._say(messages.Ended(self._journal.incarnation, report, kept=kept))

    def _restart(self, agent: AgentProcess, launch: messages.Launch) -> None:
        """Start another incarnation of a node that was kept, or a node that takes over its slot."""
        if launch.launch.reuses_slot and not self._takes_slot(launch):
            agent.close("another node needs a new agent")
            self._next = launch
            return
        launch = self._marked(launch)
        if not self._begin(launch):
            return
        has_code = not launch.launch.reuses_slot
        try:
            lacks = self._provisions.lacks(launch, has_code=has_code)
        except CannotProvide as error:
            report = ExitReport(None, 0, "not_started", "its outputs: %s" % error)
            self._say(messages.Ended(launch.incarnation, report, kept=True))
            return
        if lacks:
            self._provisions.wait(launch, has_code=has_code)
        else:
            self._restart_agent(agent, launch)

    def _restart_agent(self, agent: AgentProcess, launch: messages.Launch) -> None:
        takes_slot = launch.launch.reuses_slot
        try:
            if not takes_slot:  # else its agent does that: it may take a while
                prepare(launch, self._hosts)
        except (OSError, ValueError) as error:
            self._say_ended("not_started", str(error))
            return
        agent.kept, self._restarting, self._stopping = False, launch, False
        restart = messages.Restart(launch.launch, launch.outputs)
        agent.channel.send(launch if takes_slot else restart)

    def _marked(self, launch: messages.Launch) -> messages.Launch:
        env = mark(dict(launch.launch.env), self._folder)
        self._launched = launch._replace(launch=launch.launch._replace(env=env))
        return self._launched

    def _begin(self, launch: messages.Launch) -> bool:
        """Begin with an incarnation. Returns False if that cannot be recorded: then the node fails,
        as a server that takes over would start it again."""
        self._oom_kills, self._lost_reason = self._groups.oom_kill_count(), "node_lost"
        try:
            launched = self._journal.begin(launch.incarnation, launch.attempt, launch.node)
        except OSError as error:
            said = messages.Launched(launch.incarnation, launch.attempt, launch.node)
            self._journal.said = [said]
            self._say_ended("not_started", "its journal cannot be written: %s" % error.strerror)
            return False
        self._tell(launched)
        return True

    def _write_files(self, message: messages.WriteFiles) -> None:
        try:
            write_files(message.files, message.packed)
        except (OSError, ValueError) as error:  # a NUL in a path, or text that is not Unicode
            path = getattr(error, "filename", None) or "a file"
            why = getattr(error, "strerror", None) or str(error)
            sys.stderr.write("muster: %s cannot be written: %s\n" % (path, why))
        if self._hosts is not None:
            self._hosts.update()

    def _hear(self, agent: AgentProcess) -> None:
        for message in agent.channel.receive():
            said = _with_usage(message, agent)
            self._follow_output(message)
            if isinstance(said, messages.Ended):
                self._hear_end(agent, said)
            else:
                self._say(said)
        if agent.channel.invalid is not None:
            agent.close("its agent has sent an invalid message: %s" % agent.channel.invalid)

    def _follow_output(self, message: Message) -> None:
        """Have the output of the newest incarnation copied, of which its agent says something: its
        files are there, unless it could not start."""
        if self._log_copy is None or self._launched is None:
            return
        if isinstance(message, messages.Ended) and message.report.reason == "not_started":
            return
        self._log_copy.follow(self._launched.launch, self._launched.sizes)

    def _hear_end(self, agent: AgentProcess, ended: messages.Ended) -> None:
        agent.kept = ended.kept
        agent.ended()
        by_signal = ended.report.reason == "exit" and ended.report.exit_code == _SIGTERM_EXIT
        if by_signal and self._hosted and not self._stopping:
            self._unexplained = (ended, clock.now() + _CAUSE_TIMEOUT)
        else:
            self._say_end(ended)

    def _explain(self) -> None:
        """Report the end of a node whose cause was waited for, if that is known, or takes long."""
        if self._unexplained is not None:
            ended, due = self._unexplained
            if self._was_terminated or self._leave_at is not None or clock.now() >= due:
                self._say_end(ended)

    def _say_end(self, ended: messages.Ended) -> None:
        self._unexplained = None
        self._say(self._with_cause(ended))
        if self._leave_at is not None:
            self._leave("its node server was ended")

    def _with_cause(self, message: Message) -> Message:
        """What an agent has said, with what it does not know of the end of its program."""
        if isinstance(message, messages.Ended):
            report = message.report
            if report.signal == signal.SIGKILL and self._was_oom_killed():
                return message._replace(report=report._replace(reason="out_of_memory"))
            if self._was_terminated and report.reason == "exit":
                # also with exit code 0: it may have saved its work, and not completed it
                lost = report._replace(reason="node_lost", message=_TERMINATED)
                return message._replace(report=lost, terminated=True)
        return message

    def _was_oom_killed(self) -> bool:
        """Whether the kernel has killed a process of the newest incarnation at its memory limit."""
        return self._groups.oom_kill_count() > self._oom_kills

    def _agent_ended(self, agent: AgentProcess, status: int) -> None:
        if not agent.closed:
            for message in agent.channel.drain():  # it is not known what it has used
                self._follow_output(message)
                if isinstance(message, messages.Ended):
                    self._hear_end(agent, message)
                else:
                    self._say(message)
        self._agent = None
        self._leave_program(kept=False)
        if self._leave_at is not None:
            self._leave_at = clock.now() + _FAREWELL_TIMEOUT
        if self._provisions.waiting is not None:
            self._next = self._provisions.stop()  # the node that was kept is gone: as below
        elif self._restarting is not None and not agent.closed and self._leave_at is None:
            self._next = self._restarting  # it had ended before: a new node takes its place
            if self._stopping:
                self._end_before_start(self._next.incarnation)
        elif not self._journal.ended and self._unexplained is None:
            if not agent.closed and not self._why_lost and self._was_oom_killed():
                self._lost_reason = "out_of_memory"
            self._why_lost = self._why_lost or agent.why_closed or _how_ended(status)
        agent.close("it has ended")

    # --- the end

    def _end_gently(self) -> None:
        """After SIGTERM: let the programs end, then leave."""
        agent, waiting = self._agent, self._provisions.waiting
        self._was_terminated = self._hosted
        if agent is None or agent.closed or self._journal.ended or waiting is not None:
            self._leave("its node server was ended")
        else:
            self._leave_at = self._leave_at or float("inf")
            self._pass_on(agent, messages.Stop(self._journal.incarnation))

    def _leave(self, why: str) -> None:
        """End every process of the node at once, then leave."""
        self._leave_at = clock.now() + _FAREWELL_TIMEOUT
        self._next = None
        self._end_node(why)
        if not self._journal.ended:
            self._why_lost = self._why_lost or why


def _with_usage(message: Message, agent: AgentProcess) -> Message:
    """What an agent has said, with what its programs have used if it says that they have ended."""
    if isinstance(message, messages.Ended):
        reading = read_idle_node(agent.pid)  # not reaped yet: the pid is its own
        if reading is not None:
            return message._replace(cpu=reading.counters.cpu)
    return message


def _failure(report: ExitReport) -> str:
    """How a program has failed, in a line, with the last one of what it said about that."""
    if report.signal:
        text = "its program was ended by signal %d" % report.signal
    elif report.exit_code is not None:
        text = "its program exited with code %d" % report.exit_code
    else:
        text = "its program did not exit by itself (%s)" % report.reason
    said = " ".join(report.message.strip().rpartition("\n")[2].split())[:_MAX_MESSAGE]
    return "%s: %s" % (text, said) if said else text


def _how_ended(status: int) -> str:
    """Why the end of a node is not known. status: the wait status of its agent."""
    code, number = processes.exit_of(status)
    if not number:
        return "its agent ended with exit code %d; see server.log" % code
    return "its agent was killed by %s" % signal.Signals(number).name


def host_facts(
    folder: str, incarnation: int, modules: str, short: str, amounts: Amounts
) -> messages.HostFacts:
    """Facts of this machine. folder, incarnation: of the node. modules, short: see
    `messages.HostFacts`. amounts: what the node may use."""
    facts = machine.facts()
    cpus = facts.cpus if amounts.cpus is None else max(1, int(amounts.cpus))
    memory = facts.memory if amounts.memory is None else amounts.memory
    known = facts._replace(cpus=cpus, memory=memory, boot=machine.boot_id())._asdict()
    del known["limits"]
    return messages.HostFacts(
        **known,
        user=_user(),
        folder=folder,
        interfaces=[messages.Interface(*one) for one in machine.interfaces()],
        incarnation=incarnation,
        executable=sys.executable,
        modules=modules,
        short=short,
        environ=inherited(os.environ),
        addresses=machine.addresses(),
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user without a name, as in containers
        return str(os.getuid())
