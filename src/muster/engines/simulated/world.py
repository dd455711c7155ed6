"""Nodes that are only thought of, with what they do and how long it takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from muster.engines.simulated.agenda import Agenda
from muster.engines.simulated.life import KILLED, TERMINATED, End, Life, Script
from muster.lifecycle.events import NodeEnded, NodeEvent, NodeReady, NodeStarted
from muster.lifecycle.status import NodeRef, Reason


class Phase(IntEnum):
    """How far an incarnation has come."""

    STARTING = 0
    RUNNING = 1
    READY = 2
    ENDED = 3


class Process:
    """One incarnation of one node, as it truly is. begun: its program ran. kept: once it has
    ended, the next may begin in its place. at: when it ended, by the machine's clock."""

    __slots__ = ("at", "begun", "end", "incarnation", "kept", "life", "phase", "rank", "stopping")

    def __init__(self, ref: NodeRef, life: Life) -> None:
        self.rank, self.incarnation = ref
        self.life = life
        self.phase = Phase.STARTING
        self.begun = False
        self.stopping = False
        self.kept = False
        self.end: End | None = None
        self.at = 0.0


#: Hears of everything that truly happens, when it does: what, and to which process.
Witness = Callable[[str, Process], None]
#: Brings what nodes have to tell to whoever drives the run.
Teller = Callable[[Sequence[NodeEvent]], None]


class World:
    """The nodes of a run. What happens to many of them in one moment is one happening.

    keep: an ended node stays, so that the next incarnation starts in place. grain: seconds to
    whole multiples of which nodes start and stop, so that there are not too many such moments.
    tell: where events go to; they are lost where nobody hears. epoch: what the machine's clock
    shows at virtual time 0.
    """

    def __init__(
        self,
        agenda: Agenda,
        script: Script,
        *,
        keep: bool = False,
        grain: float = 0.0,
        epoch: float = 0.0,
        witness: Witness | None = None,
    ) -> None:
        self.processes: dict[int, Process] = {}  # the newest of each rank
        self.tell: Teller | None = None
        self.epoch = epoch
        self._agenda = agenda
        self._script = script
        self._keep = keep
        self._grain = grain
        self._witness = witness
        self._era = 0

    # --- what is asked of nodes, as it reaches them

    def start(self, attempt: int, refs: Iterable[NodeRef]) -> None:
        """Bring up those of which nothing is known, and nothing newer."""
        moments: dict[float, list[Process]] = {}
        for ref in refs:
            before = self.processes.get(ref.rank)
            if before is not None and before.incarnation >= ref.incarnation:
                continue
            if before is not None and before.phase is not Phase.ENDED:
                self._saw("refused", Process(ref, Life()))  # one incarnation at a time
                continue
            kept = before is not None and before.kept and before.begun
            life = self._script(ref, attempt, kept)
            process = self.processes[ref.rank] = Process(ref, life)
            process.kept = self._keep
            self._saw("handed over", process)
            moments.setdefault(self._moment(life.start), []).append(process)
        for moment, processes in moments.items():
            self._agenda.at(moment, self._begin, processes)

    def signal(self, refs: Iterable[NodeRef]) -> None:
        """A signal that is not SIGTERM."""
        for process in self._among(refs):
            if process.phase is not Phase.STARTING and process.life.save is not None:
                moment = self._moment(process.life.save)
                self._agenda.at(moment, self._end, [process], process.life.saved)

    def stop(self, refs: Iterable[NodeRef]) -> None:
        """SIGTERM. What has not begun needs no time to tidy up."""
        moments: dict[tuple[float, End], list[Process]] = {}
        for process in self._among(refs):
            if process.stopping:
                continue
            process.stopping = True
            life = process.life
            if process.phase is Phase.STARTING:
                moments.setdefault((self._moment(0.0), TERMINATED), []).append(process)
            elif life.stop is not None:
                moments.setdefault((self._moment(life.stop), life.stopped), []).append(process)
        for (moment, end), processes in moments.items():
            self._agenda.at(moment, self._end, processes, end)

    def kill(self, refs: Iterable[NodeRef]) -> None:
        """SIGKILL, to every process of the nodes."""
        self._agenda.at(self._agenda.now, self._end, self._among(refs), KILLED)

    def release(self, refs: Iterable[NodeRef]) -> None:
        """What has ended before these incarnations is kept for them no longer."""
        for ref in refs:
            process = self.processes.get(ref.rank)
            if process is not None and process.incarnation < ref.incarnation:
                process.kept = False

    # --- what happens to nodes

    def fail(self, ranks: Iterable[int], end: End) -> None:
        """Nodes end, whatever they were about to do."""
        found = (self.processes.get(rank) for rank in ranks)
        self._end([process for process in found if process is not None], end)

    def perish(self) -> None:
        """Everything ends, and nobody says a word of it."""
        for process in self.alive():
            self._close(process, End(None, 0, Reason.NODE_LOST))

    def forget(self) -> None:
        """Everything ends, and nothing is left that tells of it, nor is on its way to."""
        self.perish()
        self.processes.clear()
        self._era += 1

    def present(self) -> list[NodeEvent]:
        """What one who sees the nodes for the first time is told of them."""
        events: list[NodeEvent] = []
        for process in self.processes.values():
            rank, incarnation = process.rank, process.incarnation
            if process.phase is Phase.ENDED:
                events.append(_ended(process))
            elif process.phase is not Phase.STARTING:
                events.append(NodeStarted(rank, incarnation))
                if process.phase is Phase.READY:
                    events.append(NodeReady(rank, incarnation))
        return events

    def begun(self, refs: Iterable[NodeRef]) -> frozenset[int]:
        """The ranks among these whose program may have run."""
        return frozenset(
            ref.rank
            for ref in refs
            if (process := self.processes.get(ref.rank)) is not None
            and process.incarnation == ref.incarnation
            and process.begun
        )

    def alive(self) -> list[Process]:
        """Those of which something runs, or is about to."""
        return [p for p in self.processes.values() if p.phase is not Phase.ENDED]

    # --- how nodes get on

    def _begin(self, processes: list[Process]) -> None:
        events: list[NodeEvent] = []
        later: dict[float, list[Process]] = {}
        ends: dict[tuple[float, End], list[Process]] = {}
        for process in processes:
            life = process.life
            if process.phase is not Phase.STARTING:
                continue
            if life.unable is not None:
                self._end([process], life.unable)
                continue
            process.phase = Phase.RUNNING
            process.begun = True
            self._saw("runs", process)
            events.append(NodeStarted(process.rank, process.incarnation))
            if life.ready == 0.0:
                process.phase = Phase.READY
                self._saw("ready", process)
                events.append(NodeReady(process.rank, process.incarnation))
            elif life.ready is not None:
                later.setdefault(self._moment(life.ready), []).append(process)
            if life.run is not None:
                ends.setdefault((self._moment(life.run), life.end), []).append(process)
        for (moment, end), running in ends.items():
            self._agenda.at(moment, self._end, running, end)
        for moment, waiting in later.items():
            self._agenda.at(moment, self._ready, waiting)
        self._say(events)

    def _ready(self, processes: list[Process]) -> None:
        events: list[NodeEvent] = []
        for process in processes:
            if process.phase is Phase.RUNNING:
                process.phase = Phase.READY
                self._saw("ready", process)
                events.append(NodeReady(process.rank, process.incarnation))
        self._say(events)

    def _end(self, processes: list[Process], end: End) -> None:
        """The first end is the only one."""
        ended = [process for process in processes if process.phase is not Phase.ENDED]
        slow: dict[float, list[NodeEvent]] = {}
        for process in ended:
            self._close(process, end)
            slow.setdefault(process.life.tell, []).append(_ended(process))
        for delay, events in slow.items():
            if delay:
                self._agenda.after(delay, self._say_late, self._era, events)
            else:
                self._say(events)

    def _close(self, process: Process, end: End) -> None:
        process.phase, process.end, process.at = Phase.ENDED, end, self.epoch + self._agenda.now
        self._saw("ended", process)

    # --- little things

    def _moment(self, seconds: float) -> float:
        moment = self._agenda.now + seconds
        return moment if not self._grain else -(-moment // self._grain) * self._grain

    def _among(self, refs: Iterable[NodeRef]) -> list[Process]:
        found = ((self.processes.get(ref.rank), ref.incarnation) for ref in refs)
        return [
            process
            for process, incarnation in found
            if process is not None
            and process.incarnation == incarnation
            and process.phase is not Phase.ENDED
        ]

    def _saw(self, what: str, process: Process) -> None:
        if self._witness is not None:
            self._witness(what, process)

    def _say_late(self, era: int, events: Sequence[NodeEvent]) -> None:
        if era == self._era:
            self._say(events)

    def _say(self, events: Sequence[NodeEvent]) -> None:
        if events and self.tell is not None:
            self.tell(events)


def _ended(process: Process) -> NodeEnded:
    end = process.end or KILLED
    return NodeEnded(
        process.rank,
        end.exit_code,
        end.signal,
        end.reason,
        end.message,
        process.incarnation,
        None if end.raised_before is None else process.at - end.raised_before,
    )
