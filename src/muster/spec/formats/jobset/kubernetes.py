"""The fields of Kubernetes' own objects (Jobs, pods, containers) that Muster reads.

Defaults are Kubernetes'. As in `model`, values are checked before they are decoded into these
classes. `unread_fields` lists the fields that are known and not read.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

Quantity = str | int | float


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """The name, labels and annotations of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class FieldRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """A reference to a field of the pod."""

    field_path: str = ""


class ResourceFieldRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """A reference to a resource limit or request of a container."""

    resource: str = ""
    container_name: str = ""
    #: The unit in which the amount is counted.
    divisor: Quantity = 1


class EnvVarSource(Struct, frozen=True, kw_only=True, rename="camel"):
    """The source of a variable's value."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class EnvVar(Struct, frozen=True, kw_only=True, rename="camel"):
    """An environment variable."""

    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None


class ExecAction(Struct, frozen=True, kw_only=True):
    """A command that exits 0."""

    command: tuple[str, ...] = ()


class HTTPGetAction(Struct, frozen=True, kw_only=True, rename="camel"):
    """An HTTP request that succeeds."""

    #: A number, or the name of one of the container's ports.
    port: int | str = 0
    path: str = "/"
    #: `HTTP` or `HTTPS`.
    scheme: str = "HTTP"


class TCPSocketAction(Struct, frozen=True, kw_only=True):
    """A port that accepts connections."""

    #: A number, or the name of one of the container's ports.
    port: int | str = 0


class Probe(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "exec_": "exec",
        "http_get": "httpGet",
        "tcp_socket": "tcpSocket",
        "initial_delay": "initialDelaySeconds",
        "period": "periodSeconds",
        "timeout": "timeoutSeconds",
        "success_threshold": "successThreshold",
        "failure_threshold": "failureThreshold",
    },
):
    """A check whether a container is up. Times are in seconds; 0 selects the default."""

    exec_: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    initial_delay: int = 0
    period: int = 10
    timeout: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class ContainerPort(Struct, frozen=True, kw_only=True, rename="camel"):
    """A port and its name."""

    container_port: int = 1
    name: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """Amounts of resources, by name."""

    #: The most a container may use.
    limits: dict[str, Quantity] = field(default_factory=dict)
    #: What a scheduler reserves.
    requests: dict[str, Quantity] = field(default_factory=dict)


class VolumeMount(Struct, frozen=True, kw_only=True, rename="camel"):
    """The path of a volume in a container."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class SleepAction(Struct, frozen=True, kw_only=True):
    """Some seconds."""

    seconds: int = 0


class LifecycleHandler(
    Struct, frozen=True, kw_only=True, rename={"exec_": "exec", "http_get": "httpGet"}
):
    """What is done at a moment of a container's life. One of the three."""

    exec_: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is done when a container has started, and before it is stopped."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class Container(Struct, frozen=True, kw_only=True, rename="camel"):
    """A program and its environment."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle = Lifecycle()
    #: Read only to recognize sidecars and in-place restart.
    restart_policy: str = ""
    #: Read only to recognize in-place restart.
    restart_policy_rules: Any = None


class EmptyDir(Struct, frozen=True, kw_only=True):
    """A folder that is created and deleted with the pod."""


class HostPath(Struct, frozen=True, kw_only=True):
    """A folder of the machine."""

    path: str = ""
    type: str = ""


class NFSVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """An NFS export."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class ClaimVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """An existing claim."""

    claim_name: str = ""
    read_only: bool = False


class Volume(Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume of one kind; an emptyDir if no kind is given."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    nfs: NFSVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod: containers that start and end together."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    #: `OnFailure` or `Never`. JobSet: the former is the default.
    restart_policy: str = "OnFailure"
    termination_grace_period_seconds: int = 30
    service_account_name: str = "default"


class PodTemplate(Struct, frozen=True, kw_only=True):
    """The template of a Job's pods."""

    spec: PodSpec = PodSpec()
    metadata: ObjectMeta = ObjectMeta()


class OnExitCodes(Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition on a container's exit code."""

    #: `In` or `NotIn`.
    operator: str = "In"
    values: tuple[int, ...] = ()
    container_name: str = ""


class OnPodCondition(Struct, frozen=True, kw_only=True):
    """A condition of a failed pod's status."""

    type: str = ""
    status: str = "True"


class PodFailureRule(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a failed pod means to its Job."""

    #: `FailJob`, `FailIndex`, `Ignore` or `Count`.
    action: str = "FailJob"
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] = ()


class PodFailurePolicy(Struct, frozen=True, kw_only=True):
    """Rules, of which the first that matches applies."""

    rules: tuple[PodFailureRule, ...] = ()


class SuccessRule(Struct, frozen=True, kw_only=True, rename="camel"):
    """Indexes whose success is enough."""

    #: Such as `0-3,7`; all if empty.
    succeeded_indexes: str = ""
    #: How many of them; all if not given.
    succeeded_count: int | None = None


class JobSuccessPolicy(Struct, frozen=True, kw_only=True):
    """When a Job succeeds before all its pods have; each rule alone is enough."""

    rules: tuple[SuccessRule, ...] = ()


class Job(Struct, frozen=True, kw_only=True, rename="camel"):
    """A Job: runs `completions` pods to completion."""

    template: PodTemplate = PodTemplate()
    parallelism: int | None = None
    completions: int | None = None
    #: `Indexed` (pods are numbered; JobSet's default) or `NonIndexed`.
    completion_mode: str = "Indexed"
    #: See `job_arrays.backoff_limit`.
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    success_policy: JobSuccessPolicy | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    #: `TerminatingOrFailed` or `Failed`.
    pod_replacement_policy: str | None = None


class JobTemplate(Struct, frozen=True, kw_only=True):
    """The template of a replicated Job's Jobs."""

    spec: Job = Job()
    metadata: ObjectMeta = ObjectMeta()
