"""What an engine `container` finds on this machine, and whether it can run a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shlex import join

from muster.engines.container import bodies
from muster.engines.container.api import CannotReach, Daemon, Refused
from muster.engines.container.checks import missing_mounts
from muster.engines.container.credentials import NoPassword, password_of
from muster.engines.container.gpus import is_podman, way_of
from muster.engines.container.images import image_of, look_up, why_no_program, why_unusable
from muster.engines.container.profile import ContainerSettings
from muster.engines.container.sockets import NoSocket, find_socket, is_rootless
from muster.engines.findings import Finding
from muster.engines.remote.hosts import HostImage
from muster.engines.reservations.demands import count_gpus
from muster.node.machine import gpu_numbers
from muster.plan.model import RunPlan
from muster.secrets import hidden_words


def examine(name: str, settings: ContainerSettings, environ: Mapping[str, str]) -> list[Finding]:
    """The engine, what it can limit, the image of the profile, and those of its mounts that are not
    there. Changes nothing. name: of the profile."""
    missing = [
        Finding("mounts", False, problem.message, problem.hint)
        for problem in missing_mounts(name, settings)
    ]
    if settings.registry is not None:
        try:
            password_of(settings.registry, environ)
        except NoPassword as error:
            missing.append(Finding("registry", False, str(error)))
    try:
        daemon = Daemon(find_socket(settings.socket, environ))
        return [*_about(daemon), _image(daemon, settings.image, settings.pull), *missing]
    except (NoSocket, CannotReach, Refused, OSError) as error:
        return [Finding("engine", False, str(error)), *missing]


def _about(daemon: Daemon) -> Iterator[Finding]:
    """Raises CannotReach, Refused, OSError."""
    version, info = daemon.get("version"), daemon.get("info")
    name = "Podman" if is_podman(version) else "Docker"
    who = "as this user" if is_rootless(daemon.path) else "as root"
    yield Finding("engine", True, f"{name} {version['Version']} at {daemon.path}, which runs {who}")
    cgroups = f"control groups of version {bodies.cgroup_version(info)}"
    if lacks := bodies.lacking_limits(info, rootless=is_rootless(daemon.path)):
        text = f"cannot limit {' and '.join(lacks)} of nodes ({cgroups})"
        yield Finding("limits", False, text, "leave these `resources` out of jobs")
    else:
        yield Finding("limits", True, f"CPUs and memory of nodes ({cgroups})")
    if numbers := gpu_numbers():
        count, way = count_gpus(len(numbers)), way_of(version, info)
        if way:
            how = {"nvidia": "by NVIDIA's runtime"}.get(way, "as devices nvidia.com/gpu=NUMBER")
            yield Finding("gpus", True, f"{count}, which nodes get {how}")
        else:
            hint = "install the NVIDIA Container Toolkit, and restart the engine"
            yield Finding("gpus", False, f"{count}, which the engine cannot give to nodes", hint)


def check_images(
    plan: RunPlan, settings: ContainerSettings, environ: Mapping[str, str]
) -> list[Finding]:
    """Whether the engine has, or can pull, the images of a plan."""
    try:
        daemon = Daemon(find_socket(settings.socket, environ))
        wanted = bodies.images_of(plan, settings).items()
        found = [_image(daemon, name, pull) for name, pull in wanted]
        return [*found, *_programs(daemon, plan, settings)]
    except (NoSocket, CannotReach, Refused) as error:
        return [Finding("engine", False, str(error))]


def _programs(daemon: Daemon, plan: RunPlan, settings: ContainerSettings) -> Iterator[Finding]:
    """What groups run whose images say it, as far as these are on this machine. Raises CannotReach,
    Refused."""
    for group in plan.groups:
        name = bodies.image_of(group, settings)
        if not plan.runs_image(group) or (found := look_up(daemon, name)) is None:
            continue
        image = image_of(found)
        if why := why_no_program(plan, group, image, name):
            yield Finding("program", False, why)
        else:
            words = HostImage(image.entrypoint, image.command).program(group)
            yield Finding("program", True, f"group {group.name} runs {join(hidden_words(words))}")


def _image(daemon: Daemon, name: str, pull: str) -> Finding:
    """Raises CannotReach, Refused."""
    found = look_up(daemon, name)
    if found is not None and (why := why_unusable(name, found)):
        return Finding("image", False, why, "name one for this machine")
    if found is not None:
        return Finding("image", True, f"{name} is on this machine ({found['Id'][:19]})")
    if name.startswith(bodies.BUILT):
        return Finding("image", True, f"{name} is not on this machine: it will be built")
    if pull == "never":
        return Finding("image", False, f"{name} is not on this machine", f"pull it: {name}")
    return Finding("image", True, f"{name} is not on this machine: it will be pulled")
