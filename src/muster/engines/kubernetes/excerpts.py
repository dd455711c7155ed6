"""What is read of objects that are watched: the fields that `pod_facts` needs. The rest, such as
volumes and who has set which field, is skipped when answers are decoded: it is most of a pod, and
would be made of thousands of small objects."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec


class Metadata(TypedDict, total=False):
    """Of an object."""

    uid: Any
    name: Any
    labels: Any
    annotations: Any
    deletionTimestamp: Any
    ownerReferences: Any
    resourceVersion: Any


class Container(TypedDict, total=False):
    """Of a pod."""

    name: Any
    env: Any
    resources: Any


class Spec(TypedDict, total=False):
    """Of a pod, a JobSet, a Job or a Workload."""

    nodeName: Any
    subdomain: Any
    schedulingGates: Any
    containers: list[Container] | None
    suspend: Any
    queueName: Any
    active: Any


class Excerpt(TypedDict, total=False):
    """Of an object."""

    metadata: Metadata | None
    spec: Spec | None
    status: Any


class Page(TypedDict, total=False):
    """Of a list."""

    metadata: Any
    #: Of each, an `Excerpt`: one that has another shape does not hide the others.
    items: list[msgspec.Raw] | None


class Line(TypedDict, total=False):
    """Of a stream of changes."""

    type: Any
    #: An `Excerpt`, or a Status.
    object: msgspec.Raw
