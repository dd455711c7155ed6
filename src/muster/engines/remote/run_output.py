"""What the nodes of a run write on their hosts: their logs, which are copied as they grow, and what
they leave when they end, which is here before their ends are reported (`remote.collection`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from muster.engines.base import RunContext
from muster.engines.end_order import EndOrder
from muster.engines.logs import NodeOutputs, RunLogs
from muster.engines.remote.code import LOGS, RUN
from muster.engines.remote.collection import (
    Collection,
    Receive,
    TreeCopy,
    Unpacker,
    receive_tree,
)
from muster.engines.remote.contact import Contact
from muster.engines.remote.mounts import RemoteMounts
from muster.engines.remote.node import RemoteNode
from muster.engines.remote.node_contact import NodeContact
from muster.engines.remote.output import NodeOutput, on_host
from muster.engines.remote.outputs import SentOutputs
from muster.lifecycle.events import EngineEvent, NodeEnded
from muster.lifecycle.status import NodeRef, Reason
from muster.node import messages
from muster.node.files import remove_tree
from muster.node.tree_streams import version_at
from muster.plan.model import NodePlan

#: Why outputs are not here, for people.
UNREACHABLE = "it cannot be reached now"


class RunOutput:
    """The logs of a run, and the collections of its nodes.

    unheard: ranks of nodes of an earlier session, whose attempts are not known. report: adds events
    to those of the next report. changed: something is new of the node in a slot, which is its rank
    unless there are arrays. is_newest: whether no later incarnation of a node has another slot;
    called in any thread.
    """

    def __init__(
        self,
        context: RunContext,
        unheard: Iterable[int],
        mounts: RemoteMounts,
        sent: SentOutputs,
        unpacker: Unpacker,
        report: Callable[[Iterable[EngineEvent]], None],
        changed: Callable[[int], None],
        is_newest: Callable[[RemoteNode], bool],
    ) -> None:
        self._plan = context.plan
        self._run_dir = context.home.run_dir(context.plan.run_id)
        self._mounts, self._sent, self._unpacker = mounts, sent, unpacker
        self._report, self._changed, self._is_newest = report, changed, is_newest
        self._logs = RunLogs(context.plan, self._run_dir)
        #: Of the newest incarnations, by rank.
        self.attempts: dict[int, int] = {}
        # by slot:
        self._outputs: dict[int, NodeOutput] = {}  # of the newest incarnations, if they run
        self._collections: dict[int, Collection] = {}  # of those that have ended
        self._kept_there: set[int] = set()  # those of which some outputs are on their hosts only
        #: (folder, path in it) of a file of a node that was restarted -> the incarnation that has
        #: left what is here.
        self._last_written: dict[tuple[str, str], int] = {}
        self._end_order = EndOrder()
        self._unheard = set(unheard)
        self._has_old_logs = False  # whether logs of earlier attempts are not finished

    # --- logs

    def open(self, attempt: int) -> None:
        """An attempt starts, if it has not."""
        self._has_old_logs = self._logs.open(attempt) or self._has_old_logs
        if not self._unheard:
            self._logs.finish_left_attempts()

    def add(self, rank: int, attempt: int) -> None:
        """An incarnation of a node writes in an attempt that was opened."""
        self.attempts[rank] = attempt
        self._logs.add_node(attempt)

    def continue_logs(self, rank: int, attempt: int) -> None:
        """Continue with the logs of a node of an earlier session."""
        self._logs.reopen(attempt)
        self.add(rank, attempt)
        self._heard_attempt(rank)

    def _heard_attempt(self, rank: int) -> None:
        """The attempt of a node of an earlier session is known, or it has ended."""
        self._unheard.discard(rank)
        if not self._unheard and self._logs.newest >= 0:
            self._logs.finish_left_attempts()

    def attach(self, node: RemoteNode, launched: messages.Launched) -> None:
        """Continue to copy the output of an incarnation that an earlier session has launched."""
        current = node.running and launched.incarnation == node.number
        if current and node.facts is not None and node.slot not in self._outputs:
            if node.rank not in self.attempts:
                self.continue_logs(node.rank, launched.attempt)
            plan = self._plan.node(node.rank, node.slot)
            self.connect(plan, launched.attempt, node.facts.folder, continued=True)

    def connect(
        self, plan: NodePlan, attempt: int, folder: str, *, continued: bool = False
    ) -> NodeOutputs:
        """Have the output of a node copied. folder: its server's. continued: whether an earlier
        session has begun with that. Returns its files on the host. Raises OSError."""
        local = self._logs.assign_outputs(attempt, plan, continued=continued)
        remote = on_host(local, f"{folder}/{LOGS}/{attempt}")
        services = self._plan.group_for(plan).role.services
        own = [service.name for service in services if service.output == "own"]
        self._outputs[self._plan.slot_of(plan)] = NodeOutput(local, remote, own)
        return remote

    def sizes(self, slot: int) -> dict[str, int]:
        """See `NodeOutput.sizes`."""
        return self._outputs[slot].sizes

    def files(self, slot: int) -> tuple[str, str]:
        """The files on the host of a node for what its first process writes."""
        found = self._outputs.get(slot)
        return (os.devnull, os.devnull) if found is None else found.first

    def emptiable_folders(self, slot: int, folder: str) -> list[str]:
        """The folders on the host of a slot that the next node may empty, as all of their files
        were copied; none if a copy has failed. folder: the server's."""
        if slot in self._kept_there:
            return []
        return [f"{folder}/{RUN}/{one.name}" for one in self._copied_folders()]

    def _copied_folders(self) -> list[Path]:
        """The folders of the run here to which those of nodes are copied."""
        folders = [self._run_dir.outputs]
        if self._plan.artifact is not None and self._plan.artifact.kind == "function":
            folders.append(self._run_dir.results)
        return folders

    def step(self, slot: int, contact: Contact) -> None:
        """Copy what has arrived of the output of a node that runs."""
        if (output := self._outputs.get(slot)) is not None:
            output.step(contact)

    def finish_output(self, slot: int) -> None:
        """A node has ended, which is not reported yet: copy what it has written by now."""
        if (output := self._outputs.get(slot)) is not None:
            output.finish()

    def has_all(self, slot: int) -> bool:
        """Whether all that a node has written is here, after `finish_output`."""
        output = self._outputs.get(slot)
        return output is None or output.done

    def record_growth(self) -> None:
        """See `RunLogs.record_growth`."""
        self._logs.record_growth()

    def waits(self) -> tuple[list[int], float | None]:
        """See `RunLogs.waits`."""
        return self._logs.waits()

    @property
    def has_old_logs(self) -> bool:
        """Whether logs of earlier attempts can be finished, see `finish_old_logs`."""
        return self._has_old_logs

    def finish_old_logs(self) -> None:
        """Finish them. Some descriptors of `waits` are closed by that."""
        self._has_old_logs = False
        self._logs.finish_old_attempts()

    def finish(self) -> None:
        """See `Session.finish_logs`."""
        self._logs.finish()

    # --- ends

    def program_succeeded(self, ref: NodeRef) -> None:
        """A program has succeeded, and the services of its node are about to stop."""
        self._end_order.program_succeeded(ref)

    def end(self, node: RemoteNode, event: NodeEnded) -> None:
        """An incarnation has ended: collect what it has left, if there is something."""
        slot = node.slot
        output = None if slot is None else self._outputs.pop(slot, None)
        if slot is None or output is None:
            self._report(self._end_order.next(event))
            self._finish_output(node, self.attempts.get(node.rank))
            return
        node.collect()
        if node.events:
            self._changed(slot)
        attempt = self.attempts.get(event.rank)
        if node.facts is None:  # its host is gone
            output.close()
            self._collections[slot] = Collection(event, attempt, None, ())
        else:
            trees = self._trees(node, slot, node.facts.folder)
            self._collections[slot] = Collection(
                event, attempt, output, trees, wanted=node.to_end, folder=node.facts.folder
            )

    def _trees(self, node: RemoteNode, slot: int, folder: str) -> list[TreeCopy]:
        """What is copied of the folders of a host. folder: the server's."""

        def changed() -> None:
            self._changed(slot)

        def wanted(target: Path, name: str) -> bool:
            return self._is_wanted(node, target, name)

        def copy(target: Path, receive: Receive) -> TreeCopy:
            path = f"{folder}/{RUN}/{target.name}"
            own = f"rank-{node.rank}" if target == self._run_dir.outputs else ""
            return TreeCopy(path, target, self._unpacker, changed, receive, own=own)

        receivers = {self._run_dir.outputs: self._sent.receiver(slot, node.rank, wanted)}
        receive_other = partial(receive_tree, wanted=wanted)
        trees = [copy(one, receivers.get(one, receive_other)) for one in self._copied_folders()]
        return trees + self._mounts.copies(slot, node.rank, folder, changed, kept=node.kept)

    def _is_wanted(self, node: RemoteNode, target: Path, name: str) -> bool:
        """Whether to write a file that a node has left. What a later incarnation has left is not
        replaced: its host may have been reached first. In the thread that unpacks."""
        place = target.name, os.path.normpath(name)
        if node.rank < 0:  # of an earlier session, which has collected it
            return version_at(str(target), name) is None
        if not self._is_newest(node) and self._last_written.get(place, -1) > node.incarnation:
            return False
        if node.takes_turns and node.incarnation > 0:
            self._last_written[place] = node.incarnation
        return True

    def is_collecting(self, slot: int) -> bool:
        """Whether files are on the way that the newest incarnation in a slot has left."""
        return slot in self._collections

    def wants_end(self, slot: int | None) -> bool:
        """The node in a slot is to end. One that has ended and whose outputs are on the way is not
        waited for as long. Returns whether there is one."""
        collection = None if slot is None else self._collections.get(slot)
        if collection is None:
            return False
        collection.wanted = True
        return True

    def collect(self, node: RemoteNode, owner: NodeContact | None) -> None:
        """Report the end of a node if its files are here. owner: None if it has no host."""
        slot = node.slot
        collection = None if slot is None else self._collections.get(slot)
        if slot is None or collection is None:
            return
        if owner is not None:
            collection.step(owner.contact)
        if collection.done:
            del self._collections[slot]
            if collection.has_failed:
                self._kept_there.add(slot)
            self._report_end(node, collection)
            self._finish_output(node, collection.attempt)
            self._changed(slot)  # the next node in it waits for that

    def report_due_ends(self, contacts: Mapping[int, NodeContact], now: float) -> None:
        """Report the ends of nodes whose files are not waited for."""
        for slot, collection in self._collections.items():
            due = self._report_due(collection, contacts.get(slot))
            if due is not None and due <= now:
                self._report_end(contacts[slot].node, collection, UNREACHABLE)

    def deadlines(self, contacts: Mapping[int, NodeContact]) -> Iterator[float]:
        """When ends are reported though files are not here."""
        for slot, collection in self._collections.items():
            if (at := self._report_due(collection, contacts.get(slot))) is not None:
                yield at

    def _report_due(self, collection: Collection, owner: NodeContact | None) -> float | None:
        """When to report an end though its files are not here; None: that is not known."""
        if collection.reported or owner is None or owner.lost_at is None:
            return None
        return collection.waits_until(owner.lost_at)

    def _report_end(
        self,
        node: RemoteNode,
        collection: Collection,
        lost: str = "",
        reason: Reason = Reason.NODE_LOST,
    ) -> None:
        """Report the end of an incarnation, unless that was done. lost, reason: see
        `Collection.event`."""
        if not collection.reported:
            collection.reported = True
            node.collecting = False
            self._report(self._end_order.next(collection.event(lost, reason)))

    def _finish_output(self, node: RemoteNode, attempt: int | None) -> None:
        """A node that has ended in an attempt writes nothing more to its logs."""
        if node.rank in self._unheard:
            self._heard_attempt(node.rank)
        if node.takes_turns or node.slot is None:
            self.attempts.pop(node.rank, None)  # an array may have any number of nodes
        if attempt is not None and self._logs.remove_node(attempt, node.slot):
            self._has_old_logs = True

    def give_up(self, node: RemoteNode, why: str, reason: Reason = Reason.NODE_LOST) -> None:
        """Copy nothing more from the host of a node. why, reason: see `HostsOwner.gone`."""
        slot = node.slot
        assert slot is not None, "it has a host"
        self._kept_there.discard(slot)
        if (output := self._outputs.pop(slot, None)) is not None:
            output.close()
        if (collection := self._collections.pop(slot, None)) is not None:
            collection.close()
            self._report_end(node, collection, why, reason)
            self._finish_output(node, collection.attempt)

    def restarted(self, nodes: Iterable[RemoteNode]) -> None:
        """These nodes have ended with all others of the run, which is not reported of each: nothing
        was collected of them, and `give_up` was called."""
        self._end_order = EndOrder()
        for node in nodes:
            self._finish_output(node, self.attempts.pop(node.rank, None))

    def take_rest(self, node: RemoteNode, logs: Path) -> None:
        """Take what is missing of the output of a node from the files that its server has left,
        which are on this machine. logs: with a folder for each attempt; it is removed."""
        written = [int(path.name) for path in logs.iterdir() if path.name.isdigit()]
        attempt = self.attempts.get(node.rank, max(written, default=-1))
        try:
            if attempt in written:
                if node.rank not in self.attempts:  # of an earlier session
                    self.continue_logs(node.rank, attempt)
                plan = self._plan.node(node.rank, node.slot)
                local = self._logs.assign_outputs(attempt, plan, continued=True)
                output = NodeOutput(local, on_host(local, str(logs / str(attempt))))
                output.take_rest(str(logs))
            remove_tree(str(logs))
        except OSError as error:
            text = f"muster: node {node.rank}: its last output was not copied"
            sys.stderr.write(f"{text}, and stays in {logs}: {error}\n")

    def has_last(self, owner: NodeContact) -> bool:
        """Copy what was written to the outputs of a node since it has ended, by commands in it for
        instance. Returns whether that is here, or cannot be had."""
        if owner.node.facts is None:
            return False  # its server has to be heard first
        if owner.last is None:
            owner.last = self._trees(owner.node, owner.slot, owner.node.facts.folder)
        for tree in owner.last:
            tree.step(owner.contact)
            if tree.failure:
                owner.keeps_folder = True
                text = f"muster: node {owner.node.rank}: its last outputs were not copied"
                folder = f"{owner.node.facts.folder} on {owner.host.name}"
                sys.stderr.write(f"{text}, and stay in {folder}: {tree.failure}\n")
        owner.last = [tree for tree in owner.last if not tree.done]
        return not owner.last

    def close(self) -> None:
        """Copy nothing more. The logs are finished by `finish`."""
        for output in self._outputs.values():
            output.close()
        for collection in self._collections.values():
            collection.close()
