"""Read and write the containers of a pod besides that of the program.

Kubernetes: an init container with `restartPolicy: Always` is a sidecar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.errors import Problem
from muster.spec.formats.jobset.cluster_read import PodPatch
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.downward_api import Pod
from muster.spec.formats.jobset.environment_read import Program, environment
from muster.spec.formats.jobset.kubernetes import Container, Job, PodSpec
from muster.spec.formats.jobset.probes import startup_probe
from muster.spec.formats.jobset.restart_agent import is_agent
from muster.spec.formats.jobset.security import container_of
from muster.spec.formats.jobset.volumes_read import OWN_TMP, PodVolumes, mounts
from muster.spec.formats.notes import Notes
from muster.spec.models import ContainerRole, ExtraContainer, Resources
from muster.spec.wording import Refused

_ALWAYS = "Always"


class Extra(Struct, frozen=True):
    """One of them."""

    container: Container
    #: Its place in the manifest, and where that is in the pod.
    path: str
    kind: str
    number: int
    role: ContainerRole


def extra_containers(pod: PodSpec, path: str) -> Iterator[Extra]:
    """Those of a pod, without JobSet's restart agent. path: of the pod."""
    for number, container in enumerate(pod.init_containers):
        if not is_agent(container):
            role: ContainerRole = "sidecar" if container.restart_policy == _ALWAYS else "init"
            yield _extra(container, path, "initContainers", number, role)
    for number, container in enumerate(pod.containers[1:], 1):
        yield _extra(container, path, "containers", number, "main")


def _extra(container: Container, path: str, kind: str, number: int, role: ContainerRole) -> Extra:
    return Extra(container, f"{path}.{kind}[{number}]", kind, number, role)


class PodReader(Struct, frozen=True):
    """What reading a container needs besides the container."""

    shown: Pod
    #: The path of the pod.
    path: str
    claimed: Mapping[str, str]
    objects: ConfigObjects
    problems: list[Problem]
    notes: Notes
    patch: PodPatch
    #: Reads resources: those of a container, with its path.
    resources: Callable[[Container, str], Resources | None]

    def read(self, job: Job) -> tuple[ExtraContainer, ...]:
        """The other containers of the pods of a Job."""
        found = tuple(extra_containers(job.template.spec, self.path))
        self._check_names(job, found)
        return tuple(self._one(extra) for extra in found)

    def _one(self, extra: Extra) -> ExtraContainer:
        container, path, problems = extra.container, extra.path, self.problems
        problems += _unsupported(extra)
        patch = self.patch.container(extra.kind, extra.number)
        env = environment(self.shown, container, path, problems, self.notes, self.objects, patch)
        program = Program((), (), ())
        try:
            program = env.expand_command(container.command, container.args)
        except Refused as error:
            problems.append(Problem(f"{path}.command[0]", error.message, error.hint))
        found = mounts(
            self.shown,
            container,
            PodVolumes(self.claimed, self.objects, env, patch),
            (self.path, path),
            problems,
            self.notes,
            in_place=self.shown.jobset.restarts_in_place,
        )
        return ExtraContainer(
            name=container.name or "container",
            role=extra.role,
            image=container.image or "-",
            command=program.command or None,
            args=program.args if container.args else None,
            node_args=program.node_args or None,
            env=env.env,
            node_env=env.node_env,
            working_dir=container.working_dir or None,
            container=container_of(
                self.shown.rj.template.spec.template.spec.security_context,
                container,
            ),
            resources=self.resources(container, f"{path}.resources"),
            # without a volume there, each container has its own
            mounts=tuple(mount for mount in found if mount != OWN_TMP),
            startup_probe=startup_probe(container, path, problems)
            if extra.role == "sidecar"
            else None,
        )

    def _check_names(self, job: Job, found: tuple[Extra, ...]) -> None:
        """Muster has one exit code of a node, whichever of its containers has failed."""
        policy = job.pod_failure_policy
        if policy is None or all(extra.role == "sidecar" for extra in found):
            return
        path = self.path.removesuffix(".template.spec")
        for number, rule in enumerate(policy.rules):
            codes = rule.on_exit_codes
            if codes is not None and codes.container_name:
                text = "Muster has one exit code of a pod, that of the container that has failed"
                where = f"{path}.podFailurePolicy.rules[{number}].onExitCodes.containerName"
                hint = "remove it: then the rule is about all containers"
                self.problems.append(Problem(where, text, hint))


def _unsupported(extra: Extra) -> Iterator[Problem]:
    container, path = extra.container, extra.path
    for name in ("name", "image"):
        if not getattr(container, name):
            yield Problem(f"{path}.{name}", "is missing", f"give the container its {name}")
    own = container.restart_policy not in ("", _ALWAYS) or container.restart_policy_rules
    if own or (container.restart_policy and extra.role == "main"):
        name = "restartPolicy" if container.restart_policy else "restartPolicyRules"
        text = "Muster does not restart single containers of a pod, except sidecars"
        yield Problem(f"{path}.{name}", text, "set it for the pod, one level up")
    if container.liveness_probe is not None:
        text = f"Muster probes only the first container, and {container.name} is another"
        yield Problem(
            f"{path}.livenessProbe", text, "remove it, or have the container check itself"
        )
    for probe, given in (
        ("startupProbe", container.startup_probe),
        ("readinessProbe", container.readiness_probe),
    ):
        if given is not None and extra.role != "sidecar":
            text = f"Muster probes only the first container and sidecars, not {container.name}"
            yield Problem(f"{path}.{probe}", text, "remove it, or make the container a sidecar")
    for hook, action in (
        ("postStart", container.lifecycle.post_start),
        ("preStop", container.lifecycle.pre_stop),
    ):
        if action is not None:
            text = f"Muster runs hooks of the first container only, and {container.name} is another"
            yield Problem(f"{path}.lifecycle.{hook}", text, "do it in the container's command")


def written(one: ExtraContainer, container: dict[str, Any]) -> dict[str, Any]:
    """One of them as a container of a pod. container: all but what depends on its role."""
    made = {**container, "name": one.name}
    return made | ({"restartPolicy": _ALWAYS} if one.role == "sidecar" else {})
