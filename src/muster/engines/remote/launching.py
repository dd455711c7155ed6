"""Launches the nodes of a run when the addresses and ports of all are known and the code is packed.
Keeps the roster on every host up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from muster.engines.base import RunContext
from muster.engines.credentials import credentials_of
from muster.engines.endpoints import write_endpoints
from muster.engines.launch import NodePaths, NodeStart, launch_message, with_sub_paths
from muster.engines.node_ends import not_started
from muster.engines.remote.code import LOGS, RUN, WORK, CodeSource, CommandPaths, work_name
from muster.engines.remote.hosts import CompanionStart, HostImage
from muster.engines.remote.mounts import RemoteMounts
from muster.engines.remote.node import RemoteNode, Stage
from muster.engines.remote.node_contact import NodeContact
from muster.engines.remote.outputs import SentOutputs
from muster.engines.remote.ports import RemotePorts
from muster.engines.remote.programs import HostPython, environ_in, python_of
from muster.engines.remote.run_output import RunOutput
from muster.engines.remote.run_secrets import certificates, run_token
from muster.engines.remote.slots import clusters
from muster.lifecycle.events import EngineEvent, NodeLocated
from muster.node import messages
from muster.node.code import NODE
from muster.node.hosts_file import encode_names, names_beside
from muster.node.packed_text import LEAST, pack
from muster.node.roster import Member, encode_hostfile, encode_roster, hostfile_beside, member
from muster.plan.environment import EngineValues
from muster.plan.model import GroupPlan, NodePlan, RunPlan
from muster.plan.names import names_found_by
from muster.plan.template import Facts
from muster.storage.home import RunDir

if TYPE_CHECKING:
    from muster.run_tokens import Place


#: Launches that are on the way at once. Each may have some 10 KiB of variables, and the roster.
_MOST_LAUNCHES = 256


class _Cluster(Struct, frozen=True, eq=False):
    """Nodes that find each other: those of a replica of an array, or all that belong to none."""

    slots: tuple[int, ...]
    ports: RemotePorts


class SharedText:
    """A text that many nodes get."""

    def __init__(self, text: str) -> None:
        self.text = text
        #: See `node.packed_text`; "" if it is too small for that.
        self.packed = pack(text) if len(text) >= LEAST else ""


class _TextsOfCluster:
    """What the nodes of a cluster get about each other. node: one of them."""

    def __init__(self, plan: RunPlan, node: NodePlan) -> None:
        self._plan, self._node = plan, node

    @cached_property
    def hostfile(self) -> SharedText:
        """The host file of MPI."""
        addresses = [one.address for one in self._plan.cluster(self._node)]
        return SharedText(encode_hostfile(addresses, self._plan.processes_per_node).decode())

    @cached_property
    def names(self) -> SharedText:
        """See `names_found_by`."""
        return SharedText(encode_names(names_found_by(self._plan, self._node)))


class Launcher:
    """nodes, contacts: of the session, by slot: the newest node in it. A slot is a position in
    `RunPlan.nodes`, which is the rank if there are no arrays. report: see `RunOutput`."""

    def __init__(
        self,
        context: RunContext,
        nodes: Mapping[int, RemoteNode],
        contacts: Mapping[int, NodeContact],
        output: RunOutput,
        code: CodeSource,
        mounts: RemoteMounts,
        sent: SentOutputs,
        report: Callable[[Iterable[EngineEvent]], None],
    ) -> None:
        self._context = context
        self._plan = context.plan  # with addresses, see `_fill_addresses`
        self._nodes, self._contacts = nodes, contacts
        self._output, self._code, self._mounts, self._sent = output, code, mounts, sent
        self._report = report
        self._run_dir = context.home.run_dir(context.plan.run_id)
        self._token = run_token(self._run_dir)
        self._credentials = credentials_of(context)
        made = [
            _Cluster(slots, RemotePorts(context.plan.ports, len(slots)))
            for slots in clusters(context.plan)
        ]
        self._clusters = {slot: one for one in made for slot in one.slots}
        #: Slot -> the rank in its cluster of the node in it.
        self._indexes = {slot: index for one in made for index, slot in enumerate(one.slots)}
        self._wanted: set[int] = set()  # slots whose nodes are to be launched
        self._looks_at_all = False  # whether to try all of them, for something that they share
        self._addresses: dict[int, str] = {}  # by slot
        self._awaited: set[int] = set()  # slots whose addresses the others need
        self._without_ports: set[int] = set()  # slots whose ports the others need
        #: The nodes of no array that were launched, by rank.
        self._members: dict[int, Member] = {}
        self._outdated: set[int] = set()  # slots whose hosts have an earlier roster
        #: Of the nodes of no array; None: it has changed since it was made.
        self._roster: SharedText | None = None
        #: Slot -> the texts about other nodes that its launch has brought: they are there.
        self._on_host: dict[int, list[str]] = {}
        self._unanswered: set[int] = set()  # slots whose servers have not answered their launches
        self._held_back = False  # whether launches wait for those
        self._unsent: set[int] = set()  # slots whose hosts have earlier credentials

    # --- what becomes known

    def wait_for(self, slots: Iterable[int]) -> None:
        """The others need the addresses and ports of the nodes in these slots, which will have
        hosts."""
        for slot in slots:
            self._awaited.add(slot)
            ports, index = self._ports_of(slot)
            if ports.awaited(index):
                self._without_ports.add(slot)

    def has_no_host(self, slot: int) -> None:
        """The others wait for a slot no more."""
        self._addresses.pop(slot, None)
        self._awaited.discard(slot)
        self._without_ports.discard(slot)
        self._on_host.pop(slot, None)
        self._unanswered.discard(slot)
        self.try_all()

    def _ports_of(self, slot: int) -> tuple[RemotePorts, int]:
        """The ports of a cluster, and the rank in it of the node in a slot."""
        return self._clusters[slot].ports, self._indexes[slot]

    def try_all(self) -> None:
        """Something is known, or packed, for which all nodes may have waited."""
        self._looks_at_all = True

    def ask(self, owner: NodeContact) -> None:
        """A conversation with a node's server begins: ask what a launch needs."""
        self._on_host.pop(owner.slot, None)  # what was sent may be lost
        ports, index = self._ports_of(owner.slot)
        for request in (ports.request(index), self._mounts.request(owner.slot)):
            if request is not None:
                owner.contact.send(request)

    def learn(self, owner: NodeContact, message: messages.Message) -> None:
        """A node's server has said something."""
        slot = owner.slot
        self._sent.learn(slot, message)
        if isinstance(message, (messages.Launched, messages.Ended)):
            self._unanswered.discard(slot)
        if isinstance(message, messages.HostFacts):
            self._awaited.discard(slot)
            self._addresses[slot] = message.address
            self.found(owner)
        elif isinstance(message, messages.PortsReserved):
            ports, index = self._ports_of(slot)
            ports.reserved(index, message)
            if not ports.awaited(index):
                self._without_ports.discard(slot)
        elif isinstance(message, messages.FoldersFound):
            self._mounts.answered(slot, message)
        else:
            return
        self.try_all()

    def found(self, owner: NodeContact) -> None:
        """A node of an earlier session runs on its host, if it does."""
        node = owner.node
        if node.running and node.stage is not Stage.WANTED:
            self._tell_place(owner)
            self._issue_credentials(owner)  # they may have been replaced meanwhile
            self._unsent.add(owner.slot)
            if not node.takes_turns:
                self._members.setdefault(node.rank, self._member(owner.slot))

    # --- launches

    def launch(self, changed: set[int]) -> None:
        """Launch the nodes that are wanted, if everything is known. changed: slots of which
        something is new; adds those of which something is new by that."""
        self._wanted |= {slot for slot in changed if self._nodes[slot].stage is Stage.WANTED}
        if self._held_back:
            self._unanswered = {slot for slot in self._unanswered if self._is_up(slot)}
            if len(self._unanswered) <= _MOST_LAUNCHES // 2:
                self._held_back, self._looks_at_all = False, True
        slots = self._wanted if self._looks_at_all else self._wanted & changed
        slots = slots - self._lacking(slots, self._awaited)
        if not slots:
            return
        self._looks_at_all = False
        ready = [owner for slot in sorted(slots) if (owner := self._ready_to_launch(slot))]
        without_ports = self._lacking(slots, self._without_ports)
        launched = []
        for owner in ready:
            node = owner.node
            ports, index = self._ports_of(owner.slot)
            if problem := ports.problems.get(index):
                node.end(not_started(node.ref, problem))
                self.ask(owner)  # for its next start
            elif owner.slot in without_ports:
                continue
            elif self._is_packed(owner):
                launched.append(owner)
        if launched:
            self._launch_together(launched)
        changed.update(owner.slot for owner in ready)
        self._wanted = {slot for slot in self._wanted if self._nodes[slot].stage is Stage.WANTED}

    def _is_up(self, slot: int) -> bool:
        owner = self._contacts.get(slot)
        return owner is not None and owner.contact.up

    def _lacking(self, slots: set[int], missing: set[int]) -> set[int]:
        """Those of these slots whose nodes need the addresses, or ports, of any that are missing.
        With many nodes this is called for each that is found: nothing may be looked at twice."""
        if not missing or not slots:
            return set()
        if self._plan.tls:  # a run's certificates are made once, for all addresses
            return slots
        incomplete = {id(self._clusters[slot]) for slot in missing}
        return {slot for slot in slots if id(self._clusters[slot]) in incomplete}

    def _ready_to_launch(self, slot: int) -> NodeContact | None:
        """The contact with a node that is wanted, and whose host is known and can be reached."""
        owner = self._contacts.get(slot)
        # one that is collected still has files to which the next one would write
        if owner is None or owner.node.facts is None or self._output.is_collecting(slot):
            return None
        if owner.unfit:
            return None
        return owner if owner.contact.up and owner.node.stage is Stage.WANTED else None

    def _is_packed(self, owner: NodeContact) -> bool:
        """Whether all that a node is sent is packed; if it cannot be, the node has ended."""
        node = owner.node
        try:
            packed = (
                self._code.ask(),
                self._mounts.ask(owner.slot),
                self._sent.ask(owner.slot, node.rank, node.number),
            )
            return all(packed)
        except OSError as error:
            node.end(not_started(node.ref, str(error)))
            return False

    def _launch_together(self, owners: Sequence[NodeContact]) -> None:
        """Launch nodes, each of which finds the others of its cluster on its roster. Not too many
        at once: what they are sent is in memory until they have it."""
        self._fill_addresses()
        alone = [owner for owner in owners if not owner.node.takes_turns]
        new = {owner.node.rank: self._member(owner.slot) for owner in alone}
        if any(self._members.get(rank) != member for rank, member in new.items()):
            self._members |= new
            self._roster_changed()
        self._outdated.difference_update(owner.slot for owner in alone)
        problem = self._write_endpoints()
        known: dict[int, _TextsOfCluster] = {}  # by cluster
        room = max(0, _MOST_LAUNCHES - len(self._unanswered))
        self._held_back = self._held_back or len(owners) > room
        for owner in owners if problem else owners[:room]:
            node = owner.node
            if problem:
                node.end(not_started(node.ref, problem))
                continue
            try:
                node.launch(self._message(owner, known))
                self._tell_place(owner)
                self._unanswered.add(owner.slot)
            except OSError as error:
                node.end(not_started(node.ref, str(error)))

    def _shared_roster(self) -> SharedText:
        """The roster of the nodes that belong to no array."""
        if self._roster is None:
            self._roster = SharedText(encode_roster(self._members.values()).decode())
        return self._roster

    def _fill_addresses(self) -> None:
        """Fill in the addresses of the nodes that were located since the last call: for a launch,
        which needs those of all nodes."""
        found = self._plan.nodes
        nodes = [self._with_address(node) for node in found]
        if any(new is not old for new, old in zip(nodes, found, strict=True)):
            self._plan = replace(self._plan, nodes=nodes)
            self._context = replace(self._context, plan=self._plan)

    def _with_address(self, node: NodePlan) -> NodePlan:
        address = self._addresses.get(self._plan.slot_of(node), node.address)
        return node if address == node.address else replace(node, address=address)

    def _planned(self, owner: NodeContact) -> NodePlan:
        """The node of a contact, as planned."""
        return self._plan.node(owner.node.rank, owner.slot)

    def _write_endpoints(self) -> str:
        """Returns why they cannot be written; "" if they were."""
        try:
            if self._plan.endpoints:  # those of nodes that belong to no array
                alone = (slot for slot, node in self._nodes.items() if not node.takes_turns)
                ports, _ = self._ports_of(next(alone))
                write_endpoints(self._plan, ports.numbers, self._token, self._run_dir)
        except OSError as error:
            return str(error)
        return ""

    def _tell_place(self, owner: NodeContact) -> None:
        node = owner.node
        place = owner.host.name, self._addresses[owner.slot], owner.host.id
        self._report([NodeLocated(node.rank, node.incarnation, *place)])

    def _texts_of(
        self,
        owner: NodeContact,
        plan: NodePlan,
        known: dict[int, _TextsOfCluster],
        *,
        launches: bool,
    ) -> dict[str, SharedText]:
        """Path on its host -> what a node gets there about others. known: by cluster. launches:
        whether it is launched, and not only has outdated texts."""
        assert owner.node.facts is not None, "its host is known"
        cluster, path = self._clusters[owner.slot], _cluster_file(owner.node.facts.folder)
        if id(cluster) not in known:
            known[id(cluster)] = _TextsOfCluster(self._plan, plan)
        roster = self._shared_roster()
        if owner.node.takes_turns:
            members = (_member(one, rank) for rank, one in enumerate(self._plan.cluster(plan)))
            roster = SharedText(encode_roster(members).decode())
        made = {path: roster}
        if owner.host.has_names:
            made[names_beside(owner.node.facts.folder)] = known[id(cluster)].names
        if launches:  # it has the nodes that the cluster has started with
            made[hostfile_beside(path)] = known[id(cluster)].hostfile
        return made

    def _message(self, owner: NodeContact, known: dict[int, _TextsOfCluster]) -> messages.Launch:
        """Raises OSError. known: see `_texts_of`."""
        node, slot = owner.node, owner.slot
        assert node.facts is not None, "its host is known"
        plan, attempt = self._planned(owner), self._output.attempts[node.rank]
        group = self._plan.group_for(plan)
        folder = node.facts.folder
        paths = self._paths(plan, attempt, node.facts)
        if not _is_its_own(node):
            self._mounts.released(slot)
        own = with_sub_paths(self._context, plan, attempt, group.mounts)
        mounts = self._mounts.launch(slot, folder, own)
        start = NodeStart(
            attempt=attempt,
            incarnation=node.incarnation,
            ports=self._ports_of(slot)[0].numbers,
            values=EngineValues(
                token=self._token,
                interface=_interface(node.facts),
                gpus=node.facts.environ.get("CUDA_VISIBLE_DEVICES"),  # also with `clean_env`
                mounted=mounts.mounted,
                of_image=owner.host.image is not None or owner.host.keeps_variables,
            ),
            cpus=node.facts.cpus,
            memory=node.facts.memory,
            contained=False,
            disk=f"{folder} on {owner.host.name}",
            cwd="" if owner.host.image is None else owner.host.image.working_dir,
            # what runs before the program may have left something for it there
            fresh=mounts.fresh if owner.host.companions is None else (),
            reuses_slot=not _is_its_own(node),
            files=owner.host.files or None,
            waits=owner.host.companions is not None,
        )
        base = owner.host.python or node.facts.executable
        environment = _environment(self._plan, base, folder)
        python = HostPython(python_of(environment) or base, node.facts.modules)
        environ = environ_in(environment, node.facts.environ)
        context = replace(self._context, python=python.path, environ=environ)
        self._issue_credentials(owner)
        self._unsent.discard(slot)  # the launch brings them
        launch = python.launch(launch_message(context, plan, paths, start))
        launch = launch._replace(incarnation=node.number)
        there = CommandPaths(python.path, str(paths.work), python.package)
        command = self._command(group, there, owner.host.image)
        shared = self._texts_of(owner, plan, known, launches=True)
        texts = [one.text for one in shared.values()]
        if self._on_host.get(slot) == texts:
            shared = {}  # as when a program restarts in place
        self._on_host[slot] = texts
        files = {
            **{path: one.text for path, one in shared.items() if not one.packed},
            str(paths.checkpoint_file): "",
            **certificates(self._plan, self._run_dir, paths.tls),
            **self._credential_files(slot, folder),
        }
        folders = [
            str(paths.work),
            str(paths.temporary),
            f"{folder}/{RUN}/outputs",
            f"{folder}/cluster",
            str(paths.tls),
            *([] if self._credentials is None else [_credentials_folder(folder, slot)]),
            f"{folder}/{LOGS}/{attempt}",
        ]
        packed = self._code.packed
        code = None if packed is None else messages.Code(packed.sha256, folder)
        return messages.Launch(
            launch,
            python.words(command),
            folders,
            files,
            code,
            attempt,
            self._output.sizes(slot),
            mounts.messages(launch.cwd),
            environment,
            self._sent.launch(slot, node.rank, node.number, folder),
            messages.SlotNode(node.rank, node.incarnation) if node.takes_turns else None,
            empty=[
                *([] if _is_its_own(node) else self._output.emptiable_folders(slot, folder)),
                *mounts.of_node,
            ],
            packed={path: one.packed for path, one in shared.items() if one.packed},
        )

    def companion_start(self, owner: NodeContact) -> CompanionStart:
        """What the companions of a node are told that has joined. Raises OSError."""
        node = owner.node
        assert node.facts is not None, "its host is known"
        attempt = self._output.attempts[node.rank]
        self._fill_addresses()
        values = {"run.restarts": str(attempt - self._context.resumes)}
        facts = Facts(self._plan, self._planned(owner), 0, attempt, {}, values)
        outputs = self._output.files(owner.slot)
        has_ended = node.program_end is not None
        has_begun = has_ended or node.stage >= Stage.STARTING
        return CompanionStart(node.number, facts, outputs, has_begun, has_ended)

    def _command(self, group: GroupPlan, paths: CommandPaths, image: HostImage | None) -> list[str]:
        """The program's command line; empty if the group runs services only. Raises OSError if its
        image has none."""
        if not group.role.program:
            return []
        if image is not None and self._plan.runs_image(group):
            if words := image.program(group):
                return list(words)
            raise OSError(f"image {group.image} has neither ENTRYPOINT nor CMD: give a command")
        packed = self._code.packed
        command = None if packed is None else packed.command(group.name, paths)
        return [*(command or group.command or ()), *group.args]

    def _paths(self, plan: NodePlan, attempt: int, facts: messages.HostFacts) -> NodePaths:
        """Where the files of a node are on its host, and of its output from now on."""
        folder = facts.folder
        node = Path(folder) / NODE
        return NodePaths(
            folder=node,
            cluster_file=Path(_cluster_file(folder)),
            work=node / WORK / work_name(self._plan),
            outputs=self._output.connect(plan, attempt, folder),
            tls=Path(folder) / "tls",
            short=Path(facts.short) / NODE,
            run=RunDir(Path(folder) / RUN),
        )

    # --- the run's credentials

    @property
    def renews_in(self) -> float | None:
        """Seconds until credentials of the run are replaced; None: it has none."""
        return None if self._credentials is None else self._credentials.timeout()

    def renew_credentials(self, changed: Iterable[int]) -> None:
        """Replace credentials of the run if that is due, here and where their node is: as soon as
        there is contact, and the node has joined. Before, it may be writing those of its launch,
        over whatever is sent now. changed: slots."""
        if self._credentials is None:
            return
        looked_at = self._unsent.intersection(changed)
        slot = self._credentials.renew()
        if slot is not None:
            self._unsent.add(slot)
            looked_at.add(slot)
        for slot in looked_at:
            owner = self._contacts.get(slot)
            if owner is None or owner.node.facts is None or owner.node.stage < Stage.JOINED:
                continue
            self._unsent.discard(slot)
            files = self._credential_files(slot, owner.node.facts.folder)
            owner.contact.send(messages.WriteFiles(files))

    def ended(self, slot: int) -> None:
        """An incarnation in a slot has ended."""
        if self._credentials is not None:
            self._credentials.drop(slot)
            self._unsent.discard(slot)

    def _issue_credentials(self, owner: NodeContact) -> None:
        """Make those of a node that starts, or was started by an earlier session. Raises
        OSError."""
        if self._credentials is not None:
            self._credentials.issue(owner.slot, owner.node.ref, _place(owner))

    def close(self, *, remove: bool) -> None:
        """remove: whether the run has ended."""
        if self._credentials is not None and remove:
            self._credentials.remove()

    def _credential_files(self, slot: int, folder: str) -> dict[str, str]:
        """Those on a host. folder: of the node there. Raises OSError."""
        if self._credentials is None:
            return {}
        found = self._credentials.read(slot).items()
        return {f"{_credentials_folder(folder)}/{name}": content for name, content in found}

    # --- the roster

    def start_joined(self, changed: Iterable[int]) -> None:
        """Have the nodes start that have joined, once the others can find them. changed: slots."""
        joined = [slot for slot in changed if self._nodes[slot].stage is Stage.JOINED]
        if joined:
            self._write_roster()
        for slot in joined:
            self._nodes[slot].begin()

    def released(self, ranks: Iterable[int]) -> None:
        """Nodes with these ranks were given up: they leave the roster."""
        if [rank for rank in ranks if self._members.pop(rank, None) is not None]:
            self._roster_changed()
            self._write_roster()

    def _member(self, slot: int) -> Member:
        """Of a node that belongs to no array."""
        plan = self._with_address(self._plan.nodes[slot])
        return _member(plan, plan.rank)

    def _roster_changed(self) -> None:
        """What was written on hosts is outdated."""
        self._roster = None
        alone = (slot for slot, one in self._contacts.items() if not one.node.takes_turns)
        self._outdated.update(alone)

    def _write_roster(self) -> None:
        """Write the roster, and the names, where they are outdated. A node that has not joined may
        be writing those of its launch."""
        known: dict[int, _TextsOfCluster] = {}
        owners = [self._contacts[slot] for slot in self._outdated if slot in self._contacts]
        for owner in owners:
            if owner.node.facts is not None and owner.node.stage >= Stage.JOINED:
                self._outdated.discard(owner.slot)
                self._on_host.pop(owner.slot, None)
                texts = self._texts_of(owner, self._planned(owner), known, launches=False)
                files = {path: one.text for path, one in texts.items() if not one.packed}
                packed = {path: one.packed for path, one in texts.items() if one.packed}
                owner.contact.send(messages.WriteFiles(files, packed))


def _environment(plan: RunPlan, base: str, folder: str) -> messages.Environment | None:
    """The environment of a node's programs; None if the job requires no packages. base: the Python
    that it extends. folder: the node server's."""
    if plan.environment is None:
        return None
    return messages.Environment(plan.environment.requirements, base, f"{folder}/environment")


def _interface(facts: messages.HostFacts) -> str | None:
    """The interface with the address by which other hosts reach this one; None if there is none."""
    return next((one.name for one in facts.interfaces if one.address == facts.address), None)


def _is_its_own(node: RemoteNode) -> bool:
    """Whether nothing of another node is left where a node is launched."""
    return node.former in (None, node.rank)


def _member(plan: NodePlan, rank: int) -> Member:
    """The entry of a node on a roster. rank: in its cluster or, of a node of no array, in the
    run."""
    return member(rank, plan.address, plan.fqdn, plan.group, plan.node_id)


def _cluster_file(folder: str) -> str:
    return f"{folder}/cluster/cluster.json"


def _credentials_folder(folder: str, slot: int | None = None) -> str:
    """The folder of the run's credentials on a host, or of a node's in it."""
    found = str(RunDir(Path(folder) / RUN).principal)
    return found if slot is None else f"{found}/{slot}"


def _place(owner: NodeContact) -> Place | None:
    """From where the credentials of a node can be used: its host; None: not known."""
    from muster.run_tokens import place_of  # runs of servers only

    facts = owner.node.facts
    if facts is None or owner.host.addresses is None or not facts.addresses:
        return None
    seen = owner.contact.peer  # by this machine, which may be behind a translation of addresses
    found = (*facts.addresses, *owner.host.addresses, *([seen] if seen else ()))
    return place_of(found, facts.boot, main=seen or facts.address)
