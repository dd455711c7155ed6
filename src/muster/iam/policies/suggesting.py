"""The statements that a job needs: of those who start its runs, and of the runs themselves. Pure.

What is asked of those who start runs follows from what `muster run` requests (`service.methods`)
and, for jobs that clients of OCI submit, from what ADS and the `oci` CLI do (`server.oci`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.iam.policies.narrowest import narrowest
from muster.iam.policies.statements import (
    Comparison,
    Location,
    Operator,
    Subject,
    SubjectKind,
    Value,
)
from muster.identity import DEFAULT_PROJECT
from muster.images.reference import repository_name
from muster.permissions import COPY_BACK, COPY_IN, Permission
from muster.spec.formats.oci.model import (
    CustomNetwork,
    DefaultConfiguration,
    JobDetails,
    LogConfiguration,
    NodeGroupConfiguration,
    ObjectStorage,
    Standalone,
)
from muster.spec.models import ExtraContainer, JobSpec, NodeGroup
from muster.spec.oci_variables import image_in
from muster.spec.ocids import TENANCY, compartment_ocid
from muster.spec.secret_names import stored_secrets

#: The type of runs in matching rules (OCI: the second segment of their OCIDs).
RUN_TYPE = "datasciencejobrun"
#: Variables whose buckets ADS's programs write to.
_WRITTEN = ("variable OUTPUT_URI", "variable OCI__WORK_DIR", "variable WORK_DIR")
_BUCKET = re.compile(r"oci://([^\s@/'\"]+)@[^\s/'\",]+")


class BucketUse(Struct, frozen=True):
    """How a bucket is used."""

    written: bool
    why: str
    by_programs: bool = False
    """Whether programs of the job use it themselves, whose clients look whether it is there. What
    is mounted needs its objects alone."""


class Uses(Struct, frozen=True):
    """What a job uses that policies decide about."""

    clients: bool = False
    """Whether clients of OCI submit it as well: its file is theirs."""
    repositories: Mapping[str, str] = {}
    """Repository of images -> the image."""
    buckets: Mapping[str, BucketUse] = {}
    """Bucket of the object storage -> how it is used."""
    secrets: Mapping[str, str] = {}
    """Secret of the project -> the setting that uses it."""
    log_group: str = ""
    """OCID of the log group of its output; "" for none. Only clients of OCI have them."""
    creates_log: bool = False
    """Whether each run has a log of its own in the group."""
    subnet: str = ""
    """OCID of the subnet of its nodes; "" for none. As `log_group`."""
    looks_up_subnet: bool = False
    """Whether its programs ask for the subnet, to find the addresses of their nodes."""
    tags_run: bool = False
    """Whether its programs change the tags of their run."""

    @property
    def of_log_group(self) -> tuple[str, str]:
        """The variable of the log group, and its value."""
        return ("target.loggroup.id", self.log_group)


class Need(Struct, frozen=True):
    """Permissions that are asked for, all of one type of resource."""

    permissions: tuple[Permission, ...]
    why: str
    only: tuple[str, str] | None = None
    """The variable that the resource is known by, and its value; None for all."""
    own: bool = False
    """Whether users need them only for what they create."""


class Suggested(Struct, frozen=True):
    """A statement, and why it is needed."""

    text: str
    why: str


class Suggestion(Struct, frozen=True):
    """The policy of a job."""

    job: str
    project: str
    group: str
    """Of those who start runs of the job."""
    dynamic_group: str
    """Of its runs."""
    rule: str
    """The matching rule of the dynamic group: all runs of the project."""
    for_group: tuple[Suggested, ...]
    for_runs: tuple[Suggested, ...]

    def __str__(self) -> str:
        """The file of the policy: a comment before each statement says why it is needed."""
        lines = [
            f"# What job {self.job} needs in project {self.project}.",
            "",
            f"# Who starts its runs is in group {self.group}:",
            f"#     muster iam groups create {self.group}",
            *(line for one in self.for_group for line in ("", f"# {one.why}", one.text)),
        ]
        if not self.for_runs:
            return "\n".join([*lines, "", "# Its runs need nothing: no image, bucket or secret."])
        lines += [
            "",
            f"# Its runs are in dynamic group {self.dynamic_group}:",
            f'#     muster iam dynamic-groups create {self.dynamic_group} "{self.rule}"',
            *(line for one in self.for_runs for line in ("", f"# {one.why}", one.text)),
        ]
        return "\n".join(lines)


def suggest(
    uses: Uses,
    job: str,
    project: str,
    *,
    group: str | None = None,
    dynamic_group: str | None = None,
) -> Suggestion:
    """The policy of a job. project: where its runs are; a path such as `research:vision` if it is
    a compartment below others. group, dynamic_group: default: `JOB-users` and `JOB-runs`."""
    group, runs = group or f"{job}-users", dynamic_group or f"{job}-runs"
    path = () if project.lower() == DEFAULT_PROJECT else tuple(project.split(":"))
    compartment = compartment_ocid(path[-1]) if path else TENANCY
    rule = f"all {{resource.type = '{RUN_TYPE}', resource.compartment.id = '{compartment}'}}"

    def statements(kind: SubjectKind, name: str, needs: Iterable[Need]) -> tuple[Suggested, ...]:
        subject = Subject(kind, (name,))
        made = (_statement(subject, Location(path), need) for need in needs)
        return tuple(made)

    return Suggestion(
        *(job, project, group, runs, rule),
        statements(SubjectKind.GROUP, group, needs_of_users(uses)),
        statements(SubjectKind.DYNAMIC_GROUP, runs, needs_of_runs(uses)),
    )


def _statement(subject: Subject, location: Location, need: Need) -> Suggested:
    only = []
    if need.only is not None:
        variable, value = need.only
        only.append(Comparison(variable, Operator.EQUAL, (Value(value),)))
    made = narrowest(subject, location, need.permissions, only, own=need.own)
    return Suggested(str(made), need.why)


# What is needed


_P = Permission
_FOLLOWED = (_P.JOB_RUN_CREATE, _P.JOB_RUN_INSPECT, _P.JOB_RUN_READ, _P.JOB_RUN_UPDATE)


def needs_of_users(uses: Uses) -> Iterator[Need]:
    """What those need who start runs of a job and follow them."""
    if uses.clients:
        yield Need((_P.PROJECT_READ,), "clients of OCI create jobs in a Data Science project")
    needed = (_P.JOB_CREATE, _P.JOB_READ) if uses.clients else (_P.JOB_CREATE,)
    yield Need(needed, "creates the job, stores its code, and sees and changes it", own=True)
    why = "starts a run, follows it, and cancels it after Ctrl-C: not those of others"
    yield Need(_FOLLOWED, why, own=True)
    yield Need((_P.LOG_CONTENT_READ,), "shows the output of the nodes", own=True)
    if uses.log_group:
        yield Need((_P.LOG_GROUP_READ,), "finds the log group of the runs", uses.of_log_group)
    if uses.log_group and uses.creates_log:
        why = "creates a log for each run in its log group"
        yield Need((_P.LOG_GROUP_CREATE,), why, uses.of_log_group)
    if uses.subnet:
        why = f"has the nodes run in the subnet {uses.subnet}"
        yield Need((_P.SUBNET_READ, _P.SUBNET_ATTACH), why)


def needs_of_runs(uses: Uses) -> Iterator[Need]:
    """What the runs of a job need."""
    for repository, image in uses.repositories.items():
        only = ("target.repo.name", repository)
        yield Need((_P.REPOSITORY_READ,), f"pulls the image {image}", only)
    for bucket, use in uses.buckets.items():
        only = ("target.bucket.name", bucket)
        if use.by_programs:
            yield Need((_P.BUCKET_READ,), f"finds the bucket {bucket}", only)
        yield Need(COPY_BACK if use.written else COPY_IN, use.why, only)
    for secret, path in uses.secrets.items():
        only = ("target.secret.name", secret)
        yield Need((_P.SECRET_BUNDLE_READ,), f"{path} has its value", only)
    if uses.log_group:
        why = "writes its output to the log"
        yield Need((_P.LOG_CONTENT_PUSH,), why, uses.of_log_group)
    if uses.looks_up_subnet:
        yield Need((_P.JOB_READ,), "ADS's programs look for the subnet of their job")
        yield Need((_P.SUBNET_READ,), "and for its addresses, which those of the nodes are of")
    if uses.tags_run:
        why = "ADS's programs write the commit and the outputs into the tags of their run"
        yield Need((_P.JOB_RUN_READ, _P.JOB_RUN_UPDATE), why)


# What a job uses


def uses_of_spec(spec: JobSpec) -> Uses:
    """What the job of a spec uses. Mounts and texts of programs name buckets of the server's object
    storage as `oci://BUCKET@NAMESPACE`."""
    buckets: dict[str, BucketUse] = {}
    for level in _levels(spec):
        for mount in level.mounts:
            if found := _BUCKET.match(mount.source or ""):
                how = "reads" if mount.read_only else "copies files from and to"
                use = BucketUse(not mount.read_only, f"{how} {mount.source}")
                _use(buckets, found[1], use)
    _use_named(buckets, _texts(spec))
    return Uses(
        repositories={repository_name(image): image for image in _images(spec)},
        buckets=buckets,
        secrets=stored_secrets(spec),
    )


def _use(found: dict[str, BucketUse], bucket: str, use: BucketUse) -> None:
    """Record that a bucket is used: what is written stays so."""
    before = found.get(bucket, use)
    main = use if use.written and not before.written else before
    found[bucket] = replace(main, by_programs=use.by_programs or before.by_programs)


def _use_named(found: dict[str, BucketUse], texts: Iterable[tuple[str, str]]) -> None:
    """Record the buckets that texts of programs name. texts: what has them, and the texts."""
    for name, text in texts:
        for url in _BUCKET.finditer(text):
            written = name in _WRITTEN
            hint = "" if written else "; write `manage objects` if programs also write there"
            use = BucketUse(written, f"{name} has {url[0]}{hint}", by_programs=True)
            _use(found, url[1], use)


def _levels(spec: JobSpec) -> Iterator[JobSpec | NodeGroup | ExtraContainer]:
    yield spec
    for group in spec.node_groups:
        yield group
        yield from group.extra_containers


def _images(spec: JobSpec) -> Iterator[str]:
    for level in _levels(spec):
        in_variables = image_in(level.env)
        if level.image is not None:
            yield level.image
        elif in_variables is not None:
            yield in_variables[1]


def _texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """The texts that programs get, with what has them."""
    for level in _levels(spec):
        command = level.command
        yield "command", command if isinstance(command, str) else " ".join(command or ())
        yield "args", " ".join(level.args or ())
        yield from _variables(level.env)


def _variables(env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((f"variable {name}", value) for name, value in env.items())


def with_ads(uses: Uses, data: Mapping[str, Any]) -> Uses:
    """What a job of ADS's YAML uses, besides what its spec says (`uses_of_spec`). data: the
    document."""
    spec = _of(data, "spec")
    infrastructure = _of(spec, "infrastructure", "spec")
    runtime = _of(spec, "runtime")
    subnet = _text(infrastructure, "subnetId")
    roles = (_of(spec, "cluster", "spec", role) for role in ("main", "worker", "ps"))
    holders = (_of(spec, "cluster", "spec"), *roles, _of(runtime, "spec"))
    images = [image for one in holders if (image := _text(one, "image"))[:1] not in ("", "@", "<")]
    buckets = dict(uses.buckets)
    if found := _BUCKET.match(_text(spec, "cluster", "spec", "workDir")):
        use = BucketUse(True, f"nodes find each other by files in {found[0]}", by_programs=True)
        _use(buckets, found[1], use)
    return replace(
        uses,
        clients=True,
        repositories={**uses.repositories, **{repository_name(image): image for image in images}},
        buckets=buckets,
        log_group=_text(infrastructure, "logGroupId"),
        creates_log=not _text(infrastructure, "logId"),
        subnet=subnet,
        looks_up_subnet=bool(subnet) and "cluster" in spec,
        tags_run=runtime.get("type") == "gitPython",
    )


def _of(data: Any, *path: str) -> Mapping[str, Any]:
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _text(data: Any, *path: str) -> str:
    """A text in data; "" if there is none."""
    found = _of(data, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def uses_of_oci(job: JobDetails) -> Uses:
    """What a job of OCI uses (OCI: CreateJobDetails)."""
    nodes = job.job_node_configuration_details
    groups = [] if nodes is None else nodes.job_node_group_configuration_details_list or []
    levels: list[JobDetails | NodeGroupConfiguration] = [job, *groups]
    images: list[str] = []
    buckets: dict[str, BucketUse] = {}
    for mount in job.job_storage_mount_configuration_details_list or ():
        if isinstance(mount, ObjectStorage):
            use = BucketUse(True, f"mounts oci://{mount.bucket}@{mount.namespace}")
            _use(buckets, mount.bucket, use)
    for level in levels:
        container = level.job_environment_configuration_details
        if container is not None and container.image:
            images.append(container.image)
        configuration = level.job_configuration_details
        if isinstance(configuration, DefaultConfiguration):
            env = configuration.environment_variables or {}
            if (in_variables := image_in(env)) is not None:
                images.append(in_variables[1])
            if bucket := env.get("CONDA_ENV_BUCKET"):
                use = BucketUse(False, "downloads the published conda environment")
                _use(buckets, bucket, use)
            named = [*_variables(env), ("arguments", configuration.command_line_arguments or "")]
            _use_named(buckets, named)
    infrastructure = job.job_infrastructure_configuration_details
    network = None if nodes is None else nodes.job_network_configuration
    subnet = network.subnet_id if isinstance(network, CustomNetwork) else ""
    logging = job.job_log_configuration_details or LogConfiguration()
    return Uses(
        clients=True,
        repositories={repository_name(image): image for image in images},
        buckets=buckets,
        log_group=(logging.log_group_id or "") if logging.enable_logging else "",
        creates_log=bool(logging.enable_auto_log_creation),
        subnet=infrastructure.subnet_id if isinstance(infrastructure, Standalone) else subnet,
    )
