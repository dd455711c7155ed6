"""The models of rules of OCI's Events service, as they are on the wire (OCI: Events API
20181201)."""

from __future__ import annotations

from muster.spec.formats.oci.model import Labels, Wire


class NotificationAction(Wire, frozen=True, kw_only=True, tag_field="actionType", tag="ONS"):
    """Publish to a topic."""

    topic_id: str
    is_enabled: bool = True
    description: str | None = None


class FunctionAction(Wire, frozen=True, kw_only=True, tag_field="actionType", tag="FAAS"):
    """Call a function."""

    function_id: str
    is_enabled: bool = True
    description: str | None = None


class StreamAction(Wire, frozen=True, kw_only=True, tag_field="actionType", tag="OSS"):
    """Write to a stream."""

    stream_id: str
    is_enabled: bool = True
    description: str | None = None


Action = NotificationAction | FunctionAction | StreamAction


class Actions(Wire, frozen=True, kw_only=True):
    """OCI: ActionDetailsList."""

    actions: list[Action]


class CreateRule(Labels, frozen=True, kw_only=True):
    """OCI: CreateRuleDetails."""

    compartment_id: str
    condition: str
    is_enabled: bool
    actions: Actions
    description: str | None = None


class UpdateRule(Labels, frozen=True, kw_only=True):
    """OCI: UpdateRuleDetails."""

    condition: str | None = None
    is_enabled: bool | None = None
    actions: Actions | None = None
    description: str | None = None
