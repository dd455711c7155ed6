"""The fields of Kubernetes' own objects (Jobs, pods, containers) that Muster reads.

Defaults are Kubernetes'. As in `model`, values are checked before they are decoded into these
classes. `unread_fields` lists the fields that are known and not read.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from muster.spec.formats.fields import RAW

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


class KeyRef(Struct, frozen=True, kw_only=True):
    """A reference to a key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    #: Whether the object and the key may be missing.
    optional: bool = False


class ObjectRef(Struct, frozen=True, kw_only=True):
    """A reference to a ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFromSource(Struct, frozen=True, kw_only=True, rename="camel"):
    """An object whose keys become variables."""

    #: In front of each name.
    prefix: str = ""
    config_map_ref: ObjectRef | None = None
    secret_ref: ObjectRef | None = None


class EnvVarSource(Struct, frozen=True, kw_only=True, rename="camel"):
    """The source of a variable's value."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


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


class SeccompProfile(Struct, frozen=True, kw_only=True):
    """Which system calls are allowed: `Unconfined`, `RuntimeDefault` or `Localhost`."""

    type: str = ""


class Capabilities(Struct, frozen=True, kw_only=True):
    """Names without CAP_."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityContext(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of a container. What is not given is the pod's."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    capabilities: Capabilities = Capabilities()
    privileged: bool = False
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool = True
    seccomp_profile: SeccompProfile | None = None


class PodSecurityContext(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of all containers of a pod."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    seccomp_profile: SeccompProfile | None = None


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
    #: The part of the volume that is mounted; the second with references to variables.
    sub_path: str = ""
    sub_path_expr: str = ""


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
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle = Lifecycle()
    security_context: SecurityContext = SecurityContext()
    #: `Always`: an init container that is a sidecar.
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


class KeyToPath(Struct, frozen=True, kw_only=True):
    """A key, and the path of its file in the volume."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class ConfigMapVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """The values of a ConfigMap as files. No items: of all keys."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    #: 0o644.
    default_mode: int = 420
    optional: bool = False


class SecretVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """The values of a Secret as files. No items: of all keys."""

    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int = 420
    optional: bool = False


class DownwardFile(Struct, frozen=True, kw_only=True, rename="camel"):
    """A file with a field of the pod."""

    path: str = ""
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of the pod as files."""

    items: tuple[DownwardFile, ...] = ()
    default_mode: int = 420


class ProjectedObject(Struct, frozen=True, kw_only=True):
    """A ConfigMap or Secret in a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False


class ProjectedDownward(Struct, frozen=True, kw_only=True):
    """Fields of the pod in a projected volume."""

    items: tuple[DownwardFile, ...] = ()


class ProjectedSource(Struct, frozen=True, kw_only=True):
    """Files of a projected volume."""

    config_map: ProjectedObject | None = field(default=None, name="configMap")
    secret: ProjectedObject | None = None
    downward_api: ProjectedDownward | None = field(default=None, name="downwardAPI")


class ProjectedVolume(Struct, frozen=True, kw_only=True, rename="camel"):
    """Files from several sources in one volume."""

    sources: tuple[ProjectedSource, ...] = ()
    default_mode: int = 420


class HostAlias(Struct, frozen=True, kw_only=True):
    """Names of an address in /etc/hosts."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class Volume(Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume of one kind; an emptyDir if no kind is given."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    nfs: NFSVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = field(default=None, name="downwardAPI")
    projected: ProjectedVolume | None = None


class PodSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod: containers that start and end together."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    #: `OnFailure` or `Never`. JobSet: the former is the default.
    restart_policy: str = "OnFailure"
    termination_grace_period_seconds: int = 30
    service_account_name: str = "default"
    host_aliases: tuple[HostAlias, ...] = ()
    security_context: PodSecurityContext = PodSecurityContext()
    #: As in the manifest, for what becomes a patch (`cluster_read`).
    raw: dict[str, Any] = field(default_factory=dict, name=RAW)


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
