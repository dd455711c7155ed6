"""What is read of a JobSet (`jobset.x-k8s.io/v1alpha2`). Defaults are its own.

What has to be there has a default, too: `api_check` says what is missing, and what else is wrong
can be said at the same time.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from muster.spec.formats.kubernetes import Int32, JobTemplate, Number, ObjectMeta

API_VERSION = "jobset.x-k8s.io/v1alpha2"
CONTROLLER = "jobset.sigs.k8s.io/jobset-controller"

FailureAction = Literal[
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
]
JobFailureReason = Literal[
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
]


class DependsOnItem(Struct, frozen=True, kw_only=True):
    """A replicated Job that must come first."""

    name: str = ""
    status: Literal["Ready", "Complete"] = "Ready"


class ReplicatedJob(Struct, frozen=True, kw_only=True, rename="camel"):
    """`replicas` Jobs from one template."""

    name: str = ""
    template: JobTemplate = JobTemplate()
    group_name: str = "default"
    replicas: Number = 1
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
    """Whether pods have names, and below which."""

    dns: bool = True
    subdomain: str = ""
    publish_not_ready: bool = True


class Success(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: successPolicy."""

    operator: Literal["All", "Any"] = "All"
    target_replicated_jobs: tuple[str, ...] = ()


class Rule(Struct, frozen=True, kw_only=True, rename="camel"):
    """What to do about a failed Job."""

    action: FailureAction = "FailJobSet"
    name: str = ""
    target_replicated_jobs: tuple[str, ...] = ()
    on_job_failure_reasons: tuple[JobFailureReason, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()


class Failure(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: failurePolicy."""

    max_restarts: Int32 = 0
    restart_strategy: Literal["Recreate", "BlockingRecreate", "InPlaceRestart"] = "Recreate"
    rules: tuple[Rule, ...] = ()


class Startup(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: startupPolicy."""

    startup_policy_order: Literal["AnyOrder", "InOrder"] = "AnyOrder"


class Coordinator(Struct, frozen=True, kw_only=True, rename="camel"):
    """The pod whose name every pod is told."""

    replicated_job: str = ""
    job_index: Number = 0
    pod_index: Number = 0


class Retention(Struct, frozen=True, kw_only=True, rename="camel"):
    """What becomes of claims with the JobSet."""

    when_deleted: Literal["Delete", "Retain"] = "Delete"


class Claim(Struct, frozen=True, kw_only=True):
    """One claim, shared by all pods that mount it."""

    metadata: ObjectMeta = ObjectMeta()


class ClaimPolicy(Struct, frozen=True, kw_only=True, rename="camel"):
    """JobSet: volumeClaimPolicies[]."""

    templates: tuple[Claim, ...] = ()
    retention_policy: Retention = Retention()


class JobSetSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is asked for."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    network: Network = Network()
    success_policy: Success | None = None
    failure_policy: Failure | None = None
    startup_policy: Startup | None = None
    suspend: bool = False
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: Number | None = None
    volume_claim_policies: tuple[ClaimPolicy, ...] = ()
    #: JobSet: planned by KEP-1186.
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None


class JobSet(Struct, frozen=True, kw_only=True):
    """A manifest."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JobSetSpec = field(default_factory=JobSetSpec)

    @property
    def name(self) -> str:
        """Its name; of a generated one, what is known of it."""
        return self.metadata.name or self.metadata.generate_name.rstrip("-")

    @property
    def restarts_in_place(self) -> bool:
        """Whether containers start again, and pods stay."""
        policy = self.spec.failure_policy
        return policy is not None and policy.restart_strategy == "InPlaceRestart"

    @property
    def namespace(self) -> str:
        """Kubernetes: where nothing else is said, this one."""
        return self.metadata.namespace or "default"

    @property
    def subdomain(self) -> str:
        """JobSet: the name, if none is given."""
        return self.spec.network.subdomain or self.name
