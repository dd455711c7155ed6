"""Permissions: what a request needs to be allowed. `iam.policies` decides who has which.

Names are those of OCI where it has the resource; nodes, engines, members, tokens and the server
itself are Muster's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from muster.identity import DEFAULT_PROJECT


class Right(StrEnum):
    """Permissions that belong together: what the scopes of a token name, and what people are told
    they may do or lack.

    `Permission` cannot stand for it: stored tokens name rights, and a token that is limited to one
    stays limited to what the word says when permissions are added. Roles and policies give
    permissions, and know no rights.
    """

    READ = "read"
    """See jobs, runs, output and files."""
    SUBMIT = "submit"
    """Create jobs and schedules, start runs, and cancel, suspend, resume and scale them."""
    ENTER = "enter"
    """Run commands inside nodes, copy files into them, and connect to their ports."""
    DELETE = "delete"
    """Delete jobs, runs and unused files."""
    OPERATE = "operate"
    """Do the above with what others have created, where the right to do it is there, as well."""
    SET_SECRETS = "set-secrets"
    """Set and delete the project's secrets."""
    MANAGE = "manage"
    """Change the project's members, policies and the tokens of its service accounts, and read its
    audit log."""
    ADMINISTER = "administer"
    """Change users and projects, and everything in all projects. No role has it: a user is an
    administrator or not."""


class StatementRef(Struct, frozen=True):
    """A statement of a policy."""

    policy: str
    number: int
    """From 1."""
    text: str
    compartment: str = ""
    """Where the policy is attached; "" for the tenancy."""

    @property
    def place(self) -> str:
        """`POLICY#NUMBER` or, as names are of one compartment, `COMPARTMENT/POLICY#NUMBER`, as the
        audit log has it."""
        where = f"{self.compartment}/" if self.compartment else ""
        return f"{where}{self.policy}#{self.number}"


class Decision(Struct, frozen=True):
    """Whether something is allowed, and why."""

    allowed: bool
    statement: StatementRef | None = None
    """One that allows it; None for the user of the machine, who needs none."""
    missing: str = ""
    """If it is not allowed: a statement that would allow it, for a policy of the tenancy."""
    permission: Permission | None = None
    """What was asked for; None if no policy was asked."""
    on: Mapping[str, str] = {}
    """What was known of the resource."""


class Permission(StrEnum):
    """See the module."""

    PROJECT_INSPECT = "DATA_SCIENCE_PROJECT_INSPECT"
    PROJECT_READ = "DATA_SCIENCE_PROJECT_READ"
    PROJECT_UPDATE = "DATA_SCIENCE_PROJECT_UPDATE"
    PROJECT_CREATE = "DATA_SCIENCE_PROJECT_CREATE"
    PROJECT_DELETE = "DATA_SCIENCE_PROJECT_DELETE"
    PROJECT_MOVE = "DATA_SCIENCE_PROJECT_MOVE"

    JOB_INSPECT = "DATA_SCIENCE_JOB_INSPECT"
    JOB_READ = "DATA_SCIENCE_JOB_READ"
    JOB_UPDATE = "DATA_SCIENCE_JOB_UPDATE"
    JOB_CREATE = "DATA_SCIENCE_JOB_CREATE"
    JOB_DELETE = "DATA_SCIENCE_JOB_DELETE"
    JOB_MOVE = "DATA_SCIENCE_JOB_MOVE"

    JOB_RUN_INSPECT = "DATA_SCIENCE_JOB_RUN_INSPECT"
    JOB_RUN_READ = "DATA_SCIENCE_JOB_RUN_READ"
    JOB_RUN_UPDATE = "DATA_SCIENCE_JOB_RUN_UPDATE"
    """Cancel, suspend, resume and scale them, too."""
    JOB_RUN_CREATE = "DATA_SCIENCE_JOB_RUN_CREATE"
    JOB_RUN_DELETE = "DATA_SCIENCE_JOB_RUN_DELETE"
    JOB_RUN_MOVE = "DATA_SCIENCE_JOB_RUN_MOVE"

    NODE_ENTER = "DATA_SCIENCE_JOB_RUN_NODE_ENTER"
    """Run commands inside nodes, copy files into them, and connect to their ports."""

    SCHEDULE_INSPECT = "DATA_SCIENCE_SCHEDULE_INSPECT"
    SCHEDULE_READ = "DATA_SCIENCE_SCHEDULE_READ"
    SCHEDULE_UPDATE = "DATA_SCIENCE_SCHEDULE_UPDATE"
    SCHEDULE_CREATE = "DATA_SCIENCE_SCHEDULE_CREATE"
    SCHEDULE_DELETE = "DATA_SCIENCE_SCHEDULE_DELETE"
    SCHEDULE_MOVE = "DATA_SCIENCE_SCHEDULE_MOVE"

    WORK_REQUEST_INSPECT = "DATA_SCIENCE_WORK_REQUEST_INSPECT"
    WORK_REQUEST_READ = "DATA_SCIENCE_WORK_REQUEST_READ"
    WORK_REQUEST_DELETE = "DATA_SCIENCE_WORK_REQUEST_DELETE"
    """Cancel them."""

    LOG_GROUP_INSPECT = "LOG_GROUP_INSPECT"
    LOG_GROUP_READ = "LOG_GROUP_READ"
    LOG_GROUP_UPDATE = "LOG_GROUP_UPDATE"
    LOG_GROUP_CREATE = "LOG_GROUP_CREATE"
    LOG_GROUP_DELETE = "LOG_GROUP_DELETE"
    LOG_CONTENT_READ = "LOG_CONTENT_READ"
    LOG_CONTENT_PUSH = "LOG_CONTENT_PUSH"

    METRIC_INSPECT = "METRIC_INSPECT"
    METRIC_READ = "METRIC_READ"
    METRIC_WRITE = "METRIC_WRITE"

    EVENT_RULE_INSPECT = "EVENTRULE_LIST"
    EVENT_RULE_READ = "EVENTRULE_READ"
    EVENT_RULE_UPDATE = "EVENTRULE_MODIFY"
    EVENT_RULE_CREATE = "EVENTRULE_CREATE"
    EVENT_RULE_DELETE = "EVENTRULE_DELETE"

    BUCKET_INSPECT = "BUCKET_INSPECT"
    BUCKET_READ = "BUCKET_READ"
    BUCKET_UPDATE = "BUCKET_UPDATE"
    BUCKET_CREATE = "BUCKET_CREATE"
    BUCKET_DELETE = "BUCKET_DELETE"
    PAR_MANAGE = "PAR_MANAGE"
    """Create, see and delete pre-authenticated requests."""
    OBJECT_INSPECT = "OBJECT_INSPECT"
    OBJECT_READ = "OBJECT_READ"
    OBJECT_OVERWRITE = "OBJECT_OVERWRITE"
    OBJECT_CREATE = "OBJECT_CREATE"
    OBJECT_DELETE = "OBJECT_DELETE"

    REPOSITORY_INSPECT = "REPOSITORY_INSPECT"
    REPOSITORY_READ = "REPOSITORY_READ"
    """Pull images."""
    REPOSITORY_UPDATE = "REPOSITORY_UPDATE"
    REPOSITORY_CREATE = "REPOSITORY_CREATE"
    REPOSITORY_DELETE = "REPOSITORY_DELETE"
    REPOSITORY_MANAGE = "REPOSITORY_MANAGE"

    VCN_READ = "VCN_READ"
    SUBNET_READ = "SUBNET_READ"
    SUBNET_ATTACH = "SUBNET_ATTACH"
    """Run nodes in it."""
    VNIC_READ = "VNIC_READ"
    VNIC_CREATE = "VNIC_CREATE"
    VNIC_ATTACH = "VNIC_ATTACH"
    PRIVATE_IP_READ = "PRIVATE_IP_READ"
    SECURITY_LIST_READ = "SECURITY_LIST_READ"

    SECRET_INSPECT = "SECRET_INSPECT"
    SECRET_READ = "SECRET_READ"
    SECRET_UPDATE = "SECRET_UPDATE"
    SECRET_CREATE = "SECRET_CREATE"
    SECRET_DELETE = "SECRET_DELETE"
    SECRET_BUNDLE_INSPECT = "SECRET_BUNDLE_INSPECT"
    SECRET_BUNDLE_READ = "SECRET_BUNDLE_READ"
    """Read the values of secrets."""

    ENGINE_INSPECT = "ENGINE_INSPECT"
    """See engines, shapes, and the space that is left."""
    ENGINE_USE = "ENGINE_USE"
    """Check whether they work."""

    COMPARTMENT_INSPECT = "COMPARTMENT_INSPECT"
    COMPARTMENT_READ = "COMPARTMENT_READ"
    COMPARTMENT_UPDATE = "COMPARTMENT_UPDATE"
    COMPARTMENT_CREATE = "COMPARTMENT_CREATE"
    COMPARTMENT_DELETE = "COMPARTMENT_DELETE"
    COMPARTMENT_MOVE = "COMPARTMENT_MOVE"
    TENANCY_INSPECT = "TENANCY_INSPECT"

    MEMBER_INSPECT = "PROJECT_MEMBER_INSPECT"
    MEMBER_UPDATE = "PROJECT_MEMBER_UPDATE"
    """Give and take roles in a project."""
    TOKEN_INSPECT = "PROJECT_TOKEN_INSPECT"
    TOKEN_CREATE = "PROJECT_TOKEN_CREATE"
    """Create tokens of service accounts that are limited to a project."""
    TOKEN_DELETE = "PROJECT_TOKEN_DELETE"
    AUDIT_READ = "AUDIT_EVENT_READ"

    POLICY_READ = "POLICY_READ"
    POLICY_UPDATE = "POLICY_UPDATE"
    POLICY_CREATE = "POLICY_CREATE"
    POLICY_DELETE = "POLICY_DELETE"

    USER_INSPECT = "USER_INSPECT"
    USER_READ = "USER_READ"
    USER_UPDATE = "USER_UPDATE"
    """Their keys and tokens, too."""
    USER_CREATE = "USER_CREATE"
    USER_DELETE = "USER_DELETE"
    GROUP_INSPECT = "GROUP_INSPECT"
    GROUP_READ = "GROUP_READ"
    GROUP_UPDATE = "GROUP_UPDATE"
    """Add and remove users, too."""
    GROUP_CREATE = "GROUP_CREATE"
    GROUP_DELETE = "GROUP_DELETE"
    DYNAMIC_GROUP_INSPECT = "DYNAMIC_GROUP_INSPECT"
    DYNAMIC_GROUP_READ = "DYNAMIC_GROUP_READ"
    DYNAMIC_GROUP_UPDATE = "DYNAMIC_GROUP_UPDATE"
    DYNAMIC_GROUP_CREATE = "DYNAMIC_GROUP_CREATE"
    DYNAMIC_GROUP_DELETE = "DYNAMIC_GROUP_DELETE"

    SERVER_MANAGE = "SERVER_MANAGE"
    """Use the server's own user and machine."""


_OF_OTHER_RIGHTS: Mapping[Right, tuple[Permission, ...]] = {
    Right.SUBMIT: (
        *(Permission.PROJECT_UPDATE, Permission.PROJECT_CREATE),
        *(Permission.JOB_UPDATE, Permission.JOB_CREATE),
        *(Permission.JOB_RUN_UPDATE, Permission.JOB_RUN_CREATE),
        *(Permission.SCHEDULE_UPDATE, Permission.SCHEDULE_CREATE, Permission.SCHEDULE_DELETE),
        *(Permission.LOG_GROUP_UPDATE, Permission.LOG_GROUP_CREATE, Permission.LOG_CONTENT_PUSH),
        *(Permission.METRIC_WRITE, Permission.EVENT_RULE_UPDATE),
        *(Permission.EVENT_RULE_CREATE, Permission.EVENT_RULE_DELETE),
        *(Permission.OBJECT_OVERWRITE, Permission.OBJECT_CREATE, Permission.OBJECT_DELETE),
        *(Permission.REPOSITORY_UPDATE, Permission.SUBNET_ATTACH),
        *(Permission.VNIC_CREATE, Permission.VNIC_ATTACH),
        *(Permission.SECRET_BUNDLE_READ, Permission.ENGINE_USE, Permission.PAR_MANAGE),
    ),
    Right.ENTER: (Permission.NODE_ENTER,),
    Right.DELETE: (
        *(Permission.PROJECT_DELETE, Permission.PROJECT_MOVE),
        *(Permission.JOB_DELETE, Permission.JOB_MOVE),
        *(Permission.JOB_RUN_DELETE, Permission.JOB_RUN_MOVE),
        *(Permission.SCHEDULE_MOVE, Permission.WORK_REQUEST_DELETE),
        *(Permission.LOG_GROUP_DELETE, Permission.BUCKET_UPDATE),
        *(Permission.BUCKET_CREATE, Permission.BUCKET_DELETE),
        *(Permission.REPOSITORY_CREATE, Permission.REPOSITORY_DELETE),
        Permission.REPOSITORY_MANAGE,
    ),
    Right.SET_SECRETS: (
        *(Permission.SECRET_UPDATE, Permission.SECRET_CREATE, Permission.SECRET_DELETE),
    ),
    Right.MANAGE: (
        *(Permission.COMPARTMENT_UPDATE, Permission.MEMBER_UPDATE, Permission.AUDIT_READ),
        *(Permission.TOKEN_INSPECT, Permission.TOKEN_CREATE, Permission.TOKEN_DELETE),
        *(Permission.POLICY_UPDATE, Permission.POLICY_CREATE, Permission.POLICY_DELETE),
    ),
    Right.ADMINISTER: (
        *(Permission.COMPARTMENT_CREATE, Permission.COMPARTMENT_DELETE),
        *(Permission.COMPARTMENT_MOVE, Permission.SERVER_MANAGE),
        *(one for one in Permission if one.startswith(("USER_", "GROUP_", "DYNAMIC_GROUP_"))),
    ),
}
_OTHER = {one: right for right, several in _OF_OTHER_RIGHTS.items() for one in several}
#: The right that each permission is of: a token with scopes gives what is of them.
RIGHT_OF: Mapping[Permission, Right] = {
    one: _OTHER.get(one, Right.READ)
    for one in Permission
    if one in _OTHER or one.name.endswith(("_INSPECT", "_READ"))
}
#: Whoever has them at the root gives everything to everybody.
_OF_POLICIES = (Permission.POLICY_UPDATE, Permission.POLICY_CREATE, Permission.POLICY_DELETE)


def right_of(permission: Permission, project: str) -> Right:
    """The right that a permission is of in a project."""
    at_root = project.lower() == DEFAULT_PROJECT and permission in _OF_POLICIES
    return Right.ADMINISTER if at_root else RIGHT_OF[permission]


#: What it takes to copy objects out of a bucket, and also back to it: see `storage.sync`. The one
#: of the largest verb is last.
COPY_IN = (Permission.OBJECT_INSPECT, Permission.OBJECT_READ)
COPY_BACK = (*COPY_IN, Permission.OBJECT_OVERWRITE, Permission.OBJECT_CREATE)
