"""The engine `container`: each node is a container of Docker or Podman on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from muster.engines.container.profile import read_settings
from muster.engines.container.sockets import NoSocket, find_socket
from muster.engines.remote.engine import CAPABILITIES, RemoteEngine
from muster.errors import EngineError, Problem

if TYPE_CHECKING:
    from muster.engines.base import RunContext
    from muster.engines.container.bodies import Machine
    from muster.engines.container.build import ImageSource
    from muster.engines.container.hosts import RunContainers
    from muster.engines.container.record import Record
    from muster.engines.findings import Finding
    from muster.engines.loop import RunLoop
    from muster.engines.profiles import Profile
    from muster.engines.remote.hosts import HostsOwner
    from muster.plan.model import ResourcePlan, RunPlan
    from muster.storage.home import Home


class ContainerEngine(RemoteEngine):
    """See `engines.base.Engine`. Raises InvalidInput for a wrong profile."""

    capabilities = replace(
        CAPABILITIES,
        limits=True,
        gpus=True,
        images=True,
        run_network=True,
        extra_containers=True,
    )

    def __init__(self, profile: Profile, home: Home) -> None:
        self.name = profile.name
        self._settings = read_settings(profile.settings)
        self._home = home

    def available(self) -> str:
        """See `Engine.available`."""
        try:
            find_socket(self._settings.socket, os.environ)
        except NoSocket as error:
            return str(error)
        return ""

    def findings(self) -> list[Finding]:
        """See `Engine.findings`."""
        from muster.engines.container.examine import examine

        return examine(self.name, self._settings, os.environ)

    def check(self, plan: RunPlan, root: Path, replicas: Mapping[str, int]) -> list[Problem]:
        """See `Engine.check`."""
        from muster.engines.container.checks import problems
        from muster.engines.remote import plan_checks

        found = problems(self.name, plan, self._settings, replicas)
        if problem := plan_checks.check_open_files(plan, replicas):
            found.append(problem._replace(hint=f"{problem.hint}, or run fewer nodes"))
        return [*found, *plan_checks.problems(self.name, plan, own_names=True)]

    def replicas_at_once(self, resources: ResourcePlan, nodes: int) -> int:
        """See `Engine.replicas_at_once`."""
        from muster.node.machine import count_cpus, count_memory

        rooms = [count_cpus() / (nodes * (resources.cpus or 1))]
        if resources.memory is not None:
            rooms.append(count_memory() / (nodes * resources.memory))
        return max(1, int(min(rooms)))

    def notes(self, plan: RunPlan) -> list[str]:
        """See `Engine.notes`."""
        from muster.engines.container.checks import notes

        return notes(plan)

    def explain(self, plan: RunPlan) -> list[str]:
        """See `Engine.explain`."""
        from muster.engines.container.checks import explain

        return explain(plan, self._settings)

    def preview(self, plan: RunPlan) -> dict[str, str]:
        """See `Engine.preview`."""
        from muster.engines.container import bodies
        from muster.engines.container.record import Image

        machine, found = self._machine(plan=plan), dict[str, object]()
        if bodies.has_network(plan):
            found["POST /networks/create"] = bodies.network_body(plan)
        for group in plan.groups:
            slots = [slot for slot, node in enumerate(plan.nodes) if node.group == group.name]
            if not slots:
                continue
            # its id is known when it is on this machine
            image = Image(bodies.image_of(group, self._settings))
            title = f"POST /containers/create?name={bodies.container_name(plan.run_id, slots[0])}"
            if len(slots) > 1:
                others = f"nodes {slots[1]}-{slots[-1]}" if len(slots) > 2 else f"node {slots[1]}"
                title += f" (node {slots[0]}; {others} of group {group.name}: as this, with names, "
                title += "rank, label and folder of their own)"
            found[title] = bodies.container_body(plan, slots[0], image, machine)
            if group.extra_containers:
                from muster.engines.container.pod_bodies import extra_name, shown_body

                for one in group.extra_containers:
                    name = extra_name(plan.run_id, slots[0], one.name)
                    title = (
                        f"POST /containers/create?name={name} ({one.role} of group {group.name})"
                    )
                    found[title] = shown_body(plan, slots[0], one, machine)
        return {title: json.dumps(body, indent=2) for title, body in found.items()}

    def dry_run(self, plan: RunPlan) -> list[Finding]:
        """See `Engine.dry_run`."""
        from muster.engines.container.examine import check_images

        return check_images(plan, self._settings, os.environ)

    def image_source(self, folder: Path) -> ImageSource:
        """What the image of a folder is built from. Raises InvalidInput."""
        from muster.engines.container.build import read_source

        settings = self._settings
        return read_source(folder, self._home.root, settings.image, settings.python)

    def build(
        self, source: ImageSource, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        """Build an image, unless it is there. environ: the submitter's. say: gets lines on the
        progress. Raises EngineError."""
        from functools import partial

        from muster.engines.container.api import Daemon
        from muster.engines.container.build import build
        from muster.engines.container.credentials import NoPassword, auth_header

        try:
            daemon = Daemon(find_socket(self._settings.socket, environ))
            login = partial(auth_header, environ=environ, registry=self._settings.registry)
            build(daemon, source, login, say)
        except (NoSocket, NoPassword) as error:
            raise EngineError(str(error)) from None

    def clean_up(self, run_id: str) -> None:
        """See `Engine.clean_up`."""
        from muster.engines.container.api import Daemon
        from muster.engines.container.clean_up import end_containers

        folder = self._home.run_dir(run_id)
        try:
            record = self._record(run_id)
            socket = find_socket(record.socket if record else self._settings.socket, os.environ)
        except (NoSocket, OSError) as error:
            raise EngineError(f"its containers could not be removed: {error}") from None
        end_containers(Daemon(socket), run_id, folder)

    def left_behind(self, run_id: str) -> bool:
        """See `Engine.left_behind`."""
        return self._home.run_dir(run_id).containers.exists()

    def make_hosts(self, context: RunContext, loop: RunLoop, owner: HostsOwner) -> RunContainers:
        """See `RemoteEngine.make_hosts`."""
        from muster.engines.container.api import Daemon
        from muster.engines.container.hosts import RunContainers
        from muster.engines.container.sockets import is_rootless

        try:
            record = self._record(context.plan.run_id)
            if record is None:
                socket = find_socket(self._settings.socket, context.environ)
                rootless = is_rootless(socket)
            else:  # its nodes continue, whether the engine answers now or later
                socket, rootless = record.socket, record.rootless
            machine = self._machine(rootless=rootless, plan=context.plan)
        except (NoSocket, OSError) as error:
            raise EngineError(str(error)) from None
        images = {} if record is None else record.images
        return RunContainers(context, Daemon(socket), machine, loop, owner, images)

    def _record(self, run_id: str) -> Record | None:
        """Of a run whose containers an earlier session has made. Raises OSError."""
        from muster.engines.container.record import Record, record_file
        from muster.engines.remote.record import read_record

        return read_record(record_file(self._home.run_dir(run_id)), Record)

    def _machine(self, *, rootless: bool = False, plan: RunPlan | None = None) -> Machine:
        """rootless: see `Machine`. plan: whose NFS exports are to be found. Raises OSError."""
        from muster.engines.container.bodies import Machine
        from muster.engines.container.checks import absent_folders
        from muster.engines.container.program import program_folder
        from muster.engines.container.python import python_command, python_folder
        from muster.node.machine import count_cpus, count_memory, gpu_numbers

        machine = Machine(
            home=self._home,
            settings=self._settings,
            program=program_folder(self._home),
            python=python_folder(self._home),
            start=python_command(),
            cpus=count_cpus(),
            memory=count_memory(),
            gpus=gpu_numbers(),
            uid=os.getuid(),
            gid=os.getgid(),
            rootless=rootless,
        )
        if plan is not None:
            machine = replace(machine, absent=absent_folders(plan))
        exports = {
            mount.source
            for group in (plan.groups if plan else ())
            for mount in group.mounts
            if mount.kind == "nfs"
        }
        if not exports:
            return machine
        from muster.node.nfs import mounted_exports
        from muster.storage.mount_sources import nfs_export

        found = mounted_exports(map(nfs_export, exports))
        return replace(machine, exports=found)
