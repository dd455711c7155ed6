"""The words of policies: verbs, types of resources, their permissions, and variables. Pure.

Types and permissions are OCI's where it has the resource (OCI: Policy Reference); the others are
Muster's own. Each permission belongs to exactly one type.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from muster.caller import CREATED_BY
from muster.permissions import Permission


class Verb(StrEnum):
    """Each gives what those before it give, too."""

    INSPECT = "inspect"
    READ = "read"
    USE = "use"
    MANAGE = "manage"


VERBS = tuple(Verb)


class ResourceType(Struct, frozen=True):
    """A type of resource that statements name."""

    name: str
    adds: Mapping[Verb, tuple[Permission, ...]]
    """The permissions that each verb gives besides those of the verbs before it."""
    variables: tuple[str, ...] = ()
    """The variables that requests for resources of this type have, besides `GENERAL_VARIABLES`."""

    def given_by(self, verb: Verb) -> tuple[Permission, ...]:
        """The permissions that a verb gives."""
        upto = VERBS[: VERBS.index(verb) + 1]
        return tuple(one for each in upto for one in self.adds.get(each, ()))


_P = Permission


def _type(
    name: str,
    inspect: tuple[Permission, ...] = (),
    read: tuple[Permission, ...] = (),
    use: tuple[Permission, ...] = (),
    manage: tuple[Permission, ...] = (),
    variables: tuple[str, ...] = (),
) -> ResourceType:
    adds = {Verb.INSPECT: inspect, Verb.READ: read, Verb.USE: use, Verb.MANAGE: manage}
    return ResourceType(name, MappingProxyType(adds), variables)


_TYPES = (
    _type(
        "data-science-projects",
        (_P.PROJECT_INSPECT,),
        (_P.PROJECT_READ,),
        (_P.PROJECT_UPDATE,),
        (_P.PROJECT_CREATE, _P.PROJECT_DELETE, _P.PROJECT_MOVE),
        ("target.project.id", "target.project.createdBy"),
    ),
    _type(
        "data-science-jobs",
        (_P.JOB_INSPECT,),
        (_P.JOB_READ,),
        (_P.JOB_UPDATE,),
        (_P.JOB_CREATE, _P.JOB_DELETE, _P.JOB_MOVE),
        ("target.job.id", "target.job.name", "target.job.createdBy"),
    ),
    _type(
        "data-science-job-runs",
        (_P.JOB_RUN_INSPECT,),
        (_P.JOB_RUN_READ,),
        (_P.JOB_RUN_UPDATE,),
        (_P.JOB_RUN_CREATE, _P.JOB_RUN_DELETE, _P.JOB_RUN_MOVE),
        ("target.job-run.id", "target.job-run.createdBy"),
    ),
    _type(
        "data-science-job-run-nodes",
        use=(_P.NODE_ENTER,),
        variables=("target.job-run.id", "target.job-run.createdBy"),
    ),
    _type(
        "data-science-schedules",
        (_P.SCHEDULE_INSPECT,),
        (_P.SCHEDULE_READ,),
        (_P.SCHEDULE_UPDATE,),
        (_P.SCHEDULE_CREATE, _P.SCHEDULE_DELETE, _P.SCHEDULE_MOVE),
        ("target.schedule.id", "target.schedule.createdBy"),
    ),
    _type(
        "data-science-work-requests",
        (_P.WORK_REQUEST_INSPECT,),
        (_P.WORK_REQUEST_READ,),
        manage=(_P.WORK_REQUEST_DELETE,),
    ),
    _type(
        "log-groups",
        (_P.LOG_GROUP_INSPECT,),
        (_P.LOG_GROUP_READ,),
        (_P.LOG_GROUP_UPDATE,),
        (_P.LOG_GROUP_CREATE, _P.LOG_GROUP_DELETE),
        ("target.loggroup.id",),
    ),
    _type(
        "log-content",
        read=(_P.LOG_CONTENT_READ,),
        use=(_P.LOG_CONTENT_PUSH,),
        variables=("target.loggroup.id", "target.log.id"),
    ),
    _type(
        "metrics",
        (_P.METRIC_INSPECT,),
        (_P.METRIC_READ,),
        (_P.METRIC_WRITE,),
        variables=("target.metrics.namespace",),
    ),
    _type(
        "cloudevents-rules",
        (_P.EVENT_RULE_INSPECT,),
        (_P.EVENT_RULE_READ,),
        (_P.EVENT_RULE_UPDATE,),
        (_P.EVENT_RULE_CREATE, _P.EVENT_RULE_DELETE),
        ("target.rule.id",),
    ),
    _type(
        "buckets",
        (_P.BUCKET_INSPECT,),
        (_P.BUCKET_READ,),
        (_P.BUCKET_UPDATE,),
        (_P.BUCKET_CREATE, _P.BUCKET_DELETE, _P.PAR_MANAGE),
        ("target.bucket.name",),
    ),
    _type(
        "objects",
        (_P.OBJECT_INSPECT,),
        (_P.OBJECT_READ,),
        (_P.OBJECT_OVERWRITE,),
        (_P.OBJECT_CREATE, _P.OBJECT_DELETE),
        ("target.bucket.name", "target.object.name"),
    ),
    _type(
        "repos",
        (_P.REPOSITORY_INSPECT,),
        (_P.REPOSITORY_READ,),
        (_P.REPOSITORY_UPDATE,),
        (_P.REPOSITORY_CREATE, _P.REPOSITORY_DELETE, _P.REPOSITORY_MANAGE),
        ("target.repo.name",),
    ),
    # OCI: `inspect` of networking types shows all of them
    _type("vcns", (_P.VCN_READ,)),
    _type("subnets", (_P.SUBNET_READ,), use=(_P.SUBNET_ATTACH,)),
    _type("vnics", (_P.VNIC_READ,), use=(_P.VNIC_CREATE, _P.VNIC_ATTACH)),
    _type("private-ips", (_P.PRIVATE_IP_READ,)),
    _type("security-lists", (_P.SECURITY_LIST_READ,)),
    _type(
        "secrets",
        (_P.SECRET_INSPECT,),
        (_P.SECRET_READ,),
        (_P.SECRET_UPDATE,),
        (_P.SECRET_CREATE, _P.SECRET_DELETE),
        ("target.secret.name", "target.secret.id"),
    ),
    _type(
        "secret-bundles",
        (_P.SECRET_BUNDLE_INSPECT,),
        (_P.SECRET_BUNDLE_READ,),
        variables=("target.secret.name", "target.secret.id"),
    ),
    _type("engines", (_P.ENGINE_INSPECT,), use=(_P.ENGINE_USE,)),
    _type(
        "compartments",
        (_P.COMPARTMENT_INSPECT,),
        (_P.COMPARTMENT_READ,),
        (_P.COMPARTMENT_UPDATE,),
        (_P.COMPARTMENT_CREATE, _P.COMPARTMENT_DELETE, _P.COMPARTMENT_MOVE),
    ),
    _type("tenancies", (_P.TENANCY_INSPECT,)),
    # who changes members, tokens, users' keys or policies gives rights: only `manage` does
    _type("project-members", (_P.MEMBER_INSPECT,), manage=(_P.MEMBER_UPDATE,)),
    _type(
        "project-tokens",
        (_P.TOKEN_INSPECT,),
        manage=(_P.TOKEN_CREATE, _P.TOKEN_DELETE),
    ),
    _type("audit-events", read=(_P.AUDIT_READ,)),
    _type(
        "policies",
        (_P.POLICY_READ,),
        manage=(_P.POLICY_UPDATE, _P.POLICY_CREATE, _P.POLICY_DELETE),
    ),
    _type(
        "users",
        (_P.USER_INSPECT,),
        (_P.USER_READ,),
        manage=(_P.USER_UPDATE, _P.USER_CREATE, _P.USER_DELETE),
        variables=("target.user.id", "target.user.name"),
    ),
    _type(
        "groups",
        (_P.GROUP_INSPECT,),
        (_P.GROUP_READ,),
        (_P.GROUP_UPDATE,),
        (_P.GROUP_CREATE, _P.GROUP_DELETE),
        ("target.group.id", "target.group.name"),
    ),
    _type(
        "dynamic-groups",
        (_P.DYNAMIC_GROUP_INSPECT,),
        (_P.DYNAMIC_GROUP_READ,),
        (_P.DYNAMIC_GROUP_UPDATE,),
        (_P.DYNAMIC_GROUP_CREATE, _P.DYNAMIC_GROUP_DELETE),
    ),
    _type("server", manage=(_P.SERVER_MANAGE,)),
)
TYPES: Mapping[str, ResourceType] = MappingProxyType({one.name: one for one in _TYPES})
#: They are the tenancy's: only statements about all of it have an effect on them.
TENANCY_ONLY = frozenset({"users", "groups", "dynamic-groups", "server"})
TYPE_OF: Mapping[Permission, ResourceType] = MappingProxyType(
    {permission: one for one in _TYPES for permission in one.given_by(Verb.MANAGE)}
)
VERB_OF: Mapping[Permission, Verb] = MappingProxyType(
    {permission: verb for one in _TYPES for verb, adds in one.adds.items() for permission in adds}
)
"""The first verb that gives each permission."""

ALL_RESOURCES = "all-resources"
#: Entering nodes is in no family: a statement written for OCI gives no more here than there.
FAMILIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "data-science-family": (
            *("data-science-projects", "data-science-jobs", "data-science-job-runs"),
            *("data-science-schedules", "data-science-work-requests"),
        ),
        "logging-family": ("log-groups", "log-content"),
        "object-family": ("buckets", "objects"),
        "secret-family": ("secrets", "secret-bundles"),
        "virtual-network-family": ("vcns", "subnets", "vnics", "private-ips", "security-lists"),
        ALL_RESOURCES: tuple(TYPES),
    }
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Types of OCI's services that Muster does not have: statements about them have no effect.
OTHER_TYPES = _words(
    """
    alarms announcements api-gateway-family app-catalog-listing auth-tokens autonomous-backups
    autonomous-container-databases autonomous-database-family autonomous-databases backups
    bastion-family bastions boot-volume-backups byoiprange capture-filters certificate-authorities
    certificates cluster-family cluster-networks clusters compute-capacity-reservations
    compute-clusters compute-management-family console-histories cpes credentials
    cross-connects customer-secret-keys data-catalog-family data-safe-family
    data-science-model-deployments data-science-model-group-version-histories
    data-science-model-groups data-science-models data-science-modelversionsets
    data-science-notebook-sessions data-science-pipeline-runs data-science-pipelines
    data-science-private-endpoint dataflow-application dataflow-family dataflow-run
    database-family databases db-homes db-systems dedicated-vm-hosts dhcp-options dns domains
    drg-attachments drgs export-sets faas-family file-family file-systems fn-app fn-function
    functions-family generative-ai-family identity-providers instance-agent-command-family
    instance-agent-family instance-agent-plugins instance-configurations
    instance-console-connection instance-family instance-images instance-pools instances
    internet-gateways ipv6s key-delegate key-family keys leaf-certificate-family leaf-certificates
    leaf-certificate-bundles limits limits-family load-balancers local-peering-gateways
    management-agents mount-targets mysql-family nat-gateways network-load-balancers
    network-security-groups network-sources objectstorage-namespaces objectstorage-private-endpoints
    ons-family ons-subscriptions ons-topics orm-family orm-jobs orm-stacks public-ips quotas
    remote-peering-connections resource-availability route-tables saved-query service-connectors
    serviceconnectors service-gateways stream-family stream-pull stream-push streams stream-pools
    tag-defaults tag-namespaces unified-configuration usage-budgets usage-report vaults
    virtual-circuits vlans vnic-attachments volume-attachments volume-backups volume-family
    volume-group-backups volume-groups volumes waas-family web-app-firewall-family work-requests
    workspaces
    """
)
#: Permissions of OCI for types that Muster has, for what it does not do.
OTHER_PERMISSIONS = _words(
    """
    OBJECT_RESTORE OBJECT_UPDATE_TIER OBJECT_VERSION_INSPECT OBJECT_VERSION_READ
    OBJECT_VERSION_DELETE OBJECT_COPY BUCKET_UPDATE_RETENTION RETENTION_RULE_MANAGE
    RETENTION_RULE_LOCK OBJECTSTORAGE_NAMESPACE_READ OBJECTSTORAGE_NAMESPACE_UPDATE
    VNIC_DETACH VNIC_DELETE VNIC_UPDATE VNIC_ATTACHMENT_READ VNIC_ASSIGN VNIC_UNASSIGN
    SUBNET_DETACH SUBNET_CREATE SUBNET_UPDATE SUBNET_DELETE SUBNET_MOVE VCN_CREATE VCN_UPDATE
    VCN_DELETE VCN_ATTACH VCN_DETACH VCN_MOVE PRIVATE_IP_CREATE PRIVATE_IP_UPDATE
    PRIVATE_IP_DELETE PRIVATE_IP_ASSIGN PRIVATE_IP_UNASSIGN SECURITY_LIST_CREATE
    SECURITY_LIST_UPDATE SECURITY_LIST_DELETE SECURITY_LIST_MOVE SECRET_VERSION_READ
    SECRET_VERSION_INSPECT SECRET_VERSION_DELETE SECRET_ROTATE SECRET_MOVE SECRET_REPLICATE
    TENANCY_UPDATE COMPARTMENT_RECOVER LOG_GROUP_MOVE USER_UNBLOCK USER_APIKEY_ADD
    USER_APIKEY_REMOVE USER_AUTHTOKEN_SET USER_AUTHTOKEN_RESET USER_AUTHTOKEN_REMOVE
    USER_UIPASS_SET USER_UIPASS_RESET REPOSITORY_TAG AUDIT_CONFIGURATION_READ
    """
)

#: Variables of every request that has what they name.
GENERAL_VARIABLES = (
    *("request.user.id", "request.user.name", "request.groups.id"),
    *("request.permission", "request.operation", "request.region"),
    *("request.utc-timestamp", "request.utc-timestamp.month-of-year"),
    *("request.utc-timestamp.day-of-month", "request.utc-timestamp.day-of-week"),
    "request.utc-timestamp.time-of-day",
    *("request.principal.type", "request.principal.id", "request.principal.compartment.id"),
    "request.principal.createdBy",
    *("target.compartment.id", "target.compartment.name", CREATED_BY),
)
#: Each is followed by NAMESPACE.KEY of a tag, in small letters.
TAG_VARIABLES = ("target.resource.tag.", "request.principal.tag.")
#: Other variables of OCI: no request has them here, so that a comparison with one is false.
OTHER_VARIABLES = (
    *("request.ad", "request.networkSource.name", "request.user.mfaTotpVerified"),
    *("request.principal.group", "request.groups.name", "request.vcn.id"),
    *("request.ipv4.ipaddress", "target.notebook-session.id", "target.notebook-session.createdBy"),
    *("target.tag-namespace.name", "target.policy.id", "target.workrequest.type"),
)
_OTHER_PREFIXES = (
    *("target.resource.compartment.tag.", "request.principal.group.tag.", "target.bucket.tag."),
    *("request.principal.compartment.tag.", "target.group.tag.", "target.user.tag."),
)
#: Variables of the rules of dynamic groups. `tag.NAMESPACE.KEY.value` is one, too.
RULE_VARIABLES = (
    *("resource.id", "resource.type", "resource.compartment.id"),
    *("instance.id", "instance.compartment.id"),
)

#: Small letters -> as variables are written here and in `Access.attributes`.
_CANONICAL: Mapping[str, str] = {
    name.lower(): name
    for name in (
        *GENERAL_VARIABLES,
        *OTHER_VARIABLES,
        *RULE_VARIABLES,
        *(name for one in _TYPES for name in one.variables),
    )
}
#: Variables that are known as `CREATED_BY`, by the type of the resource.
_ALIASES = frozenset(
    name
    for one in _TYPES
    for name in one.variables
    if name.startswith("target.") and name.endswith(".createdBy")
)


def variables() -> tuple[str, ...]:
    """All variables of statements that requests may have."""
    own = (name for one in _TYPES for name in one.variables)
    return tuple(dict.fromkeys((*GENERAL_VARIABLES, *own)))


def canonical(variable: str) -> str | None:
    """A variable as it is written here; None if there is none of this name, in any case."""
    lower = variable.lower()
    if lower in _CANONICAL:
        return _CANONICAL[lower]
    for prefix in (*TAG_VARIABLES, *_OTHER_PREFIXES):
        if lower.startswith(prefix) and len(lower.removeprefix(prefix).split(".")) == 2:
            return lower
    return None


def tag_variable(namespace: str, key: str) -> str:
    """The variable that is a defined tag of the resource, as `Access.attributes` has it."""
    return f"{TAG_VARIABLES[0]}{namespace}.{key}".lower()


def exists(variable: str) -> bool:
    """Whether requests have a variable here. variable: canonical."""
    return not (variable in OTHER_VARIABLES or variable.startswith(_OTHER_PREFIXES))


def of_type(variable: str, resource: ResourceType) -> str | None:
    """What a variable is called in `Access.attributes` for requests about this type; None if they
    do not have it. variable: canonical."""
    if variable in _ALIASES:
        return CREATED_BY if variable in resource.variables else None
    if variable in GENERAL_VARIABLES or variable.startswith(TAG_VARIABLES):
        return variable
    return variable if variable in resource.variables else None


def types_of(resource: str) -> tuple[ResourceType, ...]:
    """The types that a type or family of a statement stands for; none if Muster has no such."""
    if resource in TYPES:
        return (TYPES[resource],)
    return tuple(TYPES[name] for name in FAMILIES.get(resource, ()))


def permissions_of(verb: Verb, resource: str) -> frozenset[Permission]:
    """The permissions that a verb gives on a type, a family or all resources."""
    return frozenset(one for each in types_of(resource) for one in each.given_by(verb))
