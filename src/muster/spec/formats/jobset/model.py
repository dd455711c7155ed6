"""The fields of a JobSet (`jobset.x-k8s.io/v1alpha2`) that Muster reads, with JobSet's defaults.

`schema` checks values and required fields before a manifest is decoded into these classes, so every
field has a default here and none has limits.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from muster.spec.formats.jobset.kubernetes import JobTemplate, ObjectMeta

API_VERSION = "jobset.x-k8s.io/v1alpha2"
CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"


class DependsOnItem(Struct, frozen=True, kw_only=True):
    """A replicated Job that must be ready or complete first."""

    name: str = ""
    #: `Ready` or `Complete`.
    status: str = "Ready"


class ReplicatedJob(Struct, frozen=True, kw_only=True, rename="camel"):
    """`replicas` Jobs made from one template."""

    name: str = ""
    template: JobTemplate = JobTemplate()
    group_name: str = "default"
    replicas: int = 1
    depends_on: tuple[DependsOnItem, ...] = ()


class Network(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "dns": "enableDNSHostnames",
        "publish_not_ready": "publishNotReadyAddresses",
    },
):
    """The DNS names of pods."""

    dns: bool = True
    subdomain: str = ""
    publish_not_ready: bool = True


class Success(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: successPolicy."""

    #: `All` or `Any`.
    operator: str = "All"
    target_replicated_jobs: tuple[str, ...] = ()


class Rule(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: failurePolicy.rules[], what to do when a Job fails."""

    #: A key of `failures_read.ACTIONS`.
    action: str = "FailJobSet"
    name: str = ""
    target_replicated_jobs: tuple[str, ...] = ()
    on_job_failure_reasons: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()


class Failure(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: failurePolicy."""

    max_restarts: int = 0
    #: A key of `failures_read.STRATEGIES`.
    restart_strategy: str = "Recreate"
    rules: tuple[Rule, ...] = ()


class Startup(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: startupPolicy."""

    #: `AnyOrder` or `InOrder`.
    startup_policy_order: str = "AnyOrder"


class Coordinator(Struct, frozen=True, kw_only=True, rename="camel"):
    """The pod whose address every pod gets as a label."""

    replicated_job: str = ""
    job_index: int = 0
    pod_index: int = 0


class Retention(Struct, frozen=True, kw_only=True, rename="camel"):
    """What happens to claims when the JobSet is deleted."""

    #: `Delete` or `Retain`.
    when_deleted: str = "Delete"


class Claim(Struct, frozen=True, kw_only=True):
    """One claim, shared by all pods that mount it."""

    metadata: ObjectMeta = ObjectMeta()


class ClaimPolicy(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: volumeClaimPolicies[]."""

    templates: tuple[Claim, ...] = ()
    retention_policy: Retention = Retention()


class JobSetSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: spec."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    network: Network = Network()
    success_policy: Success | None = None
    failure_policy: Failure | None = None
    startup_policy: Startup | None = None
    suspend: bool = False
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None
    volume_claim_policies: tuple[ClaimPolicy, ...] = ()
    #: Planned by KEP-1186 and not in the published schema, hence the limit here.
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None


class JobSet(Struct, frozen=True, kw_only=True):
    """A manifest."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSetSpec = field(default_factory=JobSetSpec)

    @property
    def name(self) -> str:
        """The JobSet's name, or the fixed part of a generated name."""
        return self.metadata.name or self.metadata.generate_name.rstrip("-")

    def job_name(self, rj: str, job: str) -> str:
        """The name of a Job. rj: its replicated Job. job: its number there."""
        return f"{self.name}-{rj}-{job}"

    def hostname(self, rj: str, job: str, index: str) -> str:
        """The host name of a pod. index: its number in its Job."""
        return f"{self.job_name(rj, job)}-{index}"

    def path_in_file(self, path: str) -> str:
        """The place in the file of a path in this record."""
        return path

    @property
    def restarts_in_place(self) -> bool:
        """Whether a restart starts containers again in the same pods."""
        policy = self.spec.failure_policy
        return policy is not None and policy.restart_strategy == "InPlaceRestart"

    @property
    def namespace(self) -> str:
        """The namespace. Kubernetes' default is `default`."""
        return self.metadata.namespace or "default"

    @property
    def subdomain(self) -> str:
        """The subdomain of the pods' names. JobSet's default is the JobSet's name."""
        return self.spec.network.subdomain or self.name
