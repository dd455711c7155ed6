"""What has started the nodes: it restarts the whole run by itself when an agent exits that nobody
answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from muster.forecast.event_queue import EventQueue
from muster.lifecycle.events import RunRestarted
from muster.lifecycle.incarnations import of_native_restart
from muster.lifecycle.status import NodeRef
from simulation.harness.agents import AgentSession, Contacts
from simulation.harness.faults import EngineRestarts, FaultPlan
from simulation.harness.world import Incarnation, Phase, World


class Infrastructure:
    """The infrastructure of a run.

    window: seconds after which an agent whose program has failed, and that has no contact with a
    session, exits. maximum: so many restarts that count it does by itself. desired: returns the
    ranks that are not scaled down. note: records faults that take effect.
    """

    def __init__(
        self,
        queue: EventQueue,
        world: World,
        contacts: Contacts,
        plan: FaultPlan,
        window: float,
        maximum: int,
        desired: Callable[[], set[int]],
        note: Callable[[str, str], None],
    ) -> None:
        self._queue, self._world, self._contacts = queue, world, contacts
        self._window, self._maximum = window, maximum
        self._desired, self._note = desired, note
        #: The nodes that its latest restart has started.
        self._begun: list[int] = []
        self._restarts = self._counted = 0
        #: The nodes that it was asked for. Empty before, and when they were given up.
        self._ranks: set[int] = set()
        #: When contact with an agent was last lost.
        self._lost_at: defaultdict[int, float] = defaultdict(float)
        for fault in plan:
            if isinstance(fault, EngineRestarts):
                queue.at(fault.at, self._restart, "preempted", fault.counted)

    @property
    def restarted(self) -> RunRestarted:
        """What it knows of its restarts."""
        return RunRestarted(self._restarts, tuple(self._begun), self._counted, "a node exited")

    def ask(self, refs: Iterable[NodeRef]) -> None:
        """It is asked for these nodes."""
        self._ranks |= {ref.rank for ref in refs}

    def release(self, refs: Iterable[NodeRef]) -> None:
        """These nodes are given up."""
        self._ranks -= {ref.rank for ref in refs}

    def release_all(self) -> None:
        """All nodes are given up."""
        self._ranks.clear()

    def ended(self, node: Incarnation) -> None:
        """A node has ended."""
        self._queue.after(self._window, self._exit, node)

    def lost(self, ranks: Iterable[int]) -> None:
        """Agents have no contact any more."""
        for rank in ranks:
            self._lost_at[rank] = self._queue.now
            node = self._world.incarnations.get(rank)
            if node is not None and node.phase is Phase.ENDED:
                self._queue.after(self._window, self._exit, node)

    def _exit(self, node: Incarnation) -> None:
        """The agent of a node exits, unless somebody has answered it."""
        current = self._world.incarnations.get(node.rank) is node and node.rank in self._ranks
        failed = node.end is not None and node.end.exit_code != 0
        heard = self._queue.now < self._lost_at[node.rank] + self._window
        if current and failed and not heard and not self._contacts.has(node.rank):
            self._restart(f"node-{node.rank}", True)

    def _restart(self, why: str, counted: bool) -> None:
        if not self._ranks or (counted and self._counted >= self._maximum):
            return
        self._restarts += 1
        self._counted += counted
        self._begun = sorted(self._ranks & self._desired())
        number = of_native_restart(self._restarts)
        session: AgentSession | None = self._contacts.session
        self._note("the engine restarts the run", f"{number}: {why}")
        if session is not None:
            self._note("the engine restarts a run with a controller", "")
            session.run_restarted()
        self._world.replace_all([NodeRef(rank, number) for rank in self._begun])
