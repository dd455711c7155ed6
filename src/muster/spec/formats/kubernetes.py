"""What is read of Kubernetes' own objects: Jobs, pods, containers.

Only fields that mean something to Muster stand here; `formats.fields` knows the others by name.
Defaults are Kubernetes'; what has to be there has one, too, see `jobset_model`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

MAX_INT32 = 2**31 - 1

Int32 = Annotated[int, Meta(ge=-(2**31), le=MAX_INT32)]
Number = Annotated[int, Meta(ge=0, le=MAX_INT32)]
Quantity = str | int | float


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who an object is."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


class FieldRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something a pod can be told about itself."""

    field_path: str = ""


class ResourceFieldRef(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a container may use, as a number of `divisor`s."""

    resource: str = ""
    container_name: str = ""
    divisor: Quantity = 1


class EnvVarSource(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a variable's value is from."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class EnvVar(Struct, frozen=True, kw_only=True, rename="camel"):
    """An environment variable."""

    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None


class ExecAction(Struct, frozen=True, kw_only=True):
    """A command that succeeds."""

    command: tuple[str, ...] = ()


class HTTPGetAction(Struct, frozen=True, kw_only=True, rename="camel"):
    """A page that is there."""

    port: int | str = 0
    path: str = "/"
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"


class TCPSocketAction(Struct, frozen=True, kw_only=True):
    """A port that somebody listens on."""

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
    """Whether a container is up. Times in seconds; 0 is the default."""

    exec_: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    initial_delay: Number = 0
    period: Number = 10
    timeout: Number = 1
    success_threshold: Number = 1
    failure_threshold: Number = 3


class ContainerPort(Struct, frozen=True, kw_only=True, rename="camel"):
    """A port by its name."""

    container_port: Annotated[int, Meta(ge=1, le=65535)] = 1
    name: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    """limits: what it may use; requests: what a scheduler sets aside."""

    limits: dict[str, Quantity] = field(default_factory=dict)
    requests: dict[str, Quantity] = field(default_factory=dict)


class VolumeMount(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a container sees a volume."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False


class Container(Struct, frozen=True, kw_only=True, rename="camel"):
    """A program and what it is given. restart_policy and its rules: of in-place restart."""

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
    restart_policy: str = ""
    restart_policy_rules: Any = None


class EmptyDir(Struct, frozen=True, kw_only=True):
    """A folder that comes and goes with the pod."""


class HostPath(Struct, frozen=True, kw_only=True):
    """A folder of the machine."""

    path: str = ""
    type: Literal["", "Directory", "DirectoryOrCreate"] = ""


class NFSVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """An export."""

    server: str = ""
    path: str = ""
    read_only: bool = False


class ClaimVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that is there already."""

    claim_name: str = ""
    read_only: bool = False


class Volume(Struct, frozen=True, kw_only=True, rename="camel"):
    """One of the kinds of volumes; an emptyDir, if none is given."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    nfs: NFSVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod: containers that live and die together."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: Literal["OnFailure", "Never"] = "OnFailure"
    termination_grace_period_seconds: Number = 30
    service_account_name: str = "default"


class PodTemplate(Struct, frozen=True, kw_only=True):
    """What the pods of a Job are made from."""

    spec: PodSpec = PodSpec()
    metadata: ObjectMeta = ObjectMeta()


class OnExitCodes(Struct, frozen=True, kw_only=True, rename="camel"):
    """Codes a container ended with."""

    operator: Literal["In", "NotIn"] = "In"
    values: tuple[Annotated[int, Meta(ge=0, le=255)], ...] = ()
    container_name: str = ""


class OnPodCondition(Struct, frozen=True, kw_only=True):
    """A condition the pod has."""

    type: str = ""
    status: str = "True"


class PodFailureRule(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a failed pod means to its Job."""

    action: Literal["FailJob", "FailIndex", "Ignore", "Count"] = "FailJob"
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: tuple[OnPodCondition, ...] = ()


class PodFailurePolicy(Struct, frozen=True, kw_only=True):
    """Rules, looked at in order."""

    rules: tuple[PodFailureRule, ...] = ()


class Job(Struct, frozen=True, kw_only=True, rename="camel"):
    """`completions` pods, numbered if Indexed. JobSet: the default of completion_mode."""

    template: PodTemplate = PodTemplate()
    parallelism: Number | None = None
    completions: Number | None = None
    completion_mode: Literal["Indexed", "NonIndexed"] = "Indexed"
    backoff_limit: Number = 6
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    pod_replacement_policy: Literal["TerminatingOrFailed", "Failed"] | None = None


class JobTemplate(Struct, frozen=True, kw_only=True):
    """What the Jobs of a replicated Job are made from."""

    spec: Job = Job()
    metadata: ObjectMeta = ObjectMeta()
