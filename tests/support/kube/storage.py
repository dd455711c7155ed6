"""What the cluster has, with a history for those who watch. In memory; for several threads.

Objects that it returns are not to be changed: `update` gives a copy to change.
"""

from __future__ import annotations

import copy
import random
import threading
import time
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from support.kube.objects import (
    BY_PLURAL,
    ApiError,
    Obj,
    Resource,
    conflict,
    has_generation,
    key_of,
    labels_of,
    not_found,
    owners_of,
    timestamp,
)

FOREGROUND = "foregroundDeletion"
#: Of namespaces: what is in them is deleted first.
CONTENT = "kubernetes"
#: Events of a kind that are kept for those who watch.
_KEPT = 50_000
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_DEFAULT_GRACE = 30
_SERVER_SET = ("uid", "creationTimestamp", "namespace", "name")


class Event(NamedTuple):
    """A change of an object."""

    #: The resourceVersion after it.
    number: int
    kind: str
    new: Obj
    old: Obj | None


#: Changes the new object, or raises ApiError; the object before is None for a new one. The last
#: one is the subresource.
Admission = Callable[[Resource, Obj, Obj | None, str], None]
Listener = Callable[[Resource, Event], None]


class Storage:
    """All objects of the cluster."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: Notified at every change.
        self.changed = threading.Condition(self.lock)
        self.admissions: list[Admission] = []
        self.listeners: list[Listener] = []
        self._objects: dict[str, dict[tuple[str, str], Obj]] = defaultdict(dict)
        self._history: dict[str, list[Event]] = defaultdict(list)
        self._dependents: dict[str, set[tuple[str, str, str]]] = defaultdict(set)
        self._places: dict[str, tuple[str, str, str]] = {}
        self._number = 1000
        #: The history before this resourceVersion is gone.
        self.compacted = 0

    # --- reading

    @property
    def number(self) -> int:
        """The resourceVersion of the last change."""
        return self._number

    def find(self, plural: str, namespace: str, name: str) -> Obj | None:
        return self._objects[plural].get((namespace, name))

    def get(self, plural: str, namespace: str, name: str) -> Obj:
        """Raises ApiError."""
        found = self.find(plural, namespace, name)
        if found is None:
            raise not_found(BY_PLURAL[plural], name)
        return found

    def listed(
        self, plural: str, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> list[Obj]:
        """Objects in the order of their names. namespace: "" for all."""
        with self.lock:
            found = sorted(self._objects[plural].items())
        return [
            one
            for (place, _), one in found
            if namespace in ("", place)
            and all(labels_of(one).get(key) == value for key, value in (labels or {}).items())
        ]

    def dependents(self, uid: str, plural: str = "") -> list[Obj]:
        """Objects that an object owns. plural: of this kind only."""
        with self.lock:
            keys = sorted(self._dependents.get(uid, ()))
            return [
                self._objects[kind][namespace, name]
                for kind, namespace, name in keys
                if plural in ("", kind)
            ]

    def has_uid(self, uid: str) -> bool:
        return uid in self._places

    def by_uid(self, uid: str) -> Obj | None:
        with self.lock:
            place = self._places.get(uid)
            return None if place is None else self.find(*place)

    def since(self, plural: str, number: int) -> list[Event]:
        """The events of a kind after a resourceVersion. Raises ApiError if they are gone."""
        with self.lock:
            if number < self.compacted:
                text = f"too old resource version: {number} ({self.compacted})"
                raise ApiError(410, "Expired", text)
            history = self._history[plural]
            return history[bisect_right(history, number, key=lambda event: event.number) :]

    def compact(self) -> None:
        """Forget the history: who watches from an earlier resourceVersion is told 410."""
        with self.lock:
            self._number += 1
            self.compacted = self._number
            self._history.clear()
            self.changed.notify_all()

    # --- writing

    def create(self, plural: str, obj: Obj, *, dry_run: bool = False) -> Obj:
        """Raises ApiError."""
        resource, made = BY_PLURAL[plural], copy.deepcopy(obj)
        meta = made.setdefault("metadata", {})
        with self.lock:
            self._name(resource, meta)
            key = key_of(made)
            self._check_namespace(resource, key)
            if key in self._objects[plural]:
                details = {"name": key[1], "group": resource.group, "kind": plural}
                text = f'{resource.qualified} "{key[1]}" already exists'
                raise ApiError(409, "AlreadyExists", text, details)
            made |= {"apiVersion": resource.api_version, "kind": resource.kind}
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp()}
            if has_generation(resource):
                meta["generation"] = 1
            if resource.status and resource.plural != "nodes":
                made.pop("status", None)
            for admit in self.admissions:
                admit(resource, made, None, "")
            if not dry_run:
                self._put(resource, key, made, None)
            return made

    def update(
        self,
        plural: str,
        namespace: str,
        name: str,
        change: Callable[[Obj], object],
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Obj:
        """Change a copy of an object, and put it in its place. Nothing is written if it is equal.
        Raises ApiError. subresource: `status` if only that may change, `` for all but that, `*` for
        controllers, which may change both."""
        resource = BY_PLURAL[plural]
        with self.lock:
            old = self.get(plural, namespace, name)
            new = copy.deepcopy(old)
            change(new)
            given = new["metadata"].get("resourceVersion") or old["metadata"]["resourceVersion"]
            if given != old["metadata"]["resourceVersion"]:
                why = (
                    "the object has been modified; please apply your changes to the latest version "
                    "and try again"
                )
                raise conflict(resource, name, why)
            self._restore(resource, new, old, subresource)
            if new == old:
                return old
            if has_generation(resource) and new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            if subresource != "*":
                for admit in self.admissions:
                    admit(resource, new, old, subresource)
            if not dry_run:
                meta = new["metadata"]
                self._put(resource, (namespace, name), new, old)
                if _may_go(meta):
                    self._end(resource, new)
            return new

    def delete(
        self,
        plural: str,
        namespace: str,
        name: str,
        *,
        propagation: str = "Background",
        grace: int | None = None,
        uid: str | None = None,
        version: str | None = None,
    ) -> Obj:
        """Raises ApiError. Returns the object: it has a deletionTimestamp if it is not gone yet."""
        resource = BY_PLURAL[plural]
        with self.lock:
            old = self.get(plural, namespace, name)
            meta = old["metadata"]
            for what, given, has in (
                ("UID", uid, meta["uid"]),
                ("ResourceVersion", version, meta["resourceVersion"]),
            ):
                if given is not None and given != has:
                    why = f"Precondition failed: {what} in precondition: {given}, {what} in object "
                    raise conflict(resource, name, why + f"meta: {has}")
            new = copy.deepcopy(old)
            meta = new["metadata"]
            finalizers = meta.setdefault("finalizers", [])
            if propagation == "Foreground" and FOREGROUND not in finalizers:
                finalizers.append(FOREGROUND)
            if plural == "namespaces" and "deletionTimestamp" not in meta:
                finalizers.append(CONTENT)
                new.setdefault("status", {})["phase"] = "Terminating"
            if propagation == "Orphan":
                self._orphan(meta["uid"])
            seconds = self._grace(resource, new, grace)
            if "deletionTimestamp" not in meta or seconds < meta.get(
                "deletionGracePeriodSeconds", 0
            ):
                meta.setdefault("deletionTimestamp", timestamp(time.time() + seconds))
                meta["deletionGracePeriodSeconds"] = seconds
            ended = not finalizers and not seconds
            if not finalizers:
                del meta["finalizers"]
            if new != old and not ended:
                self._put(resource, (namespace, name), new, old)
            if ended:
                self._end(resource, new)
            return new

    def event(
        self, about: Obj, kind: str, reason: str, message: str, component: str = "cluster"
    ) -> None:
        """Record an event about an object."""
        meta = about["metadata"]
        now = timestamp()
        namespace = meta.get("namespace") or "default"
        obj = {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": namespace},
            "involvedObject": {
                "kind": about["kind"],
                "apiVersion": about["apiVersion"],
                "namespace": namespace,
                "name": meta["name"],
                "uid": meta["uid"],
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self.create("events", obj)
        except ApiError:
            pass  # its namespace is being deleted

    # --- within

    def _name(self, resource: Resource, meta: Obj) -> None:
        if not meta.get("name"):
            if not meta.get("generateName"):
                text = "name or generateName is required"
                raise ApiError(422, "Invalid", f"{resource.kind} is invalid: metadata.name: {text}")
            meta["name"] = meta["generateName"] + "".join(random.choices(_LETTERS, k=5))
        if not resource.namespaced:
            meta.pop("namespace", None)

    def _check_namespace(self, resource: Resource, key: tuple[str, str]) -> None:
        if not resource.namespaced:
            return
        found = self.find("namespaces", "", key[0])
        if found is None:
            raise not_found(BY_PLURAL["namespaces"], key[0])
        if "deletionTimestamp" in found["metadata"]:
            text = (
                f'{resource.qualified} "{key[1]}" is forbidden: unable to create new content in '
                f"namespace {key[0]} because it is being terminated"
            )
            raise ApiError(403, "Forbidden", text, {"name": key[1], "kind": resource.plural})

    def _restore(self, resource: Resource, new: Obj, old: Obj, subresource: str) -> None:
        """Take back what this write must not change."""
        was, meta = old["metadata"], new.setdefault("metadata", {})
        for name in (*_SERVER_SET, "generation", "deletionTimestamp"):
            if name in was:
                meta[name] = was[name]
        meta["resourceVersion"] = was["resourceVersion"]
        if subresource == "status":
            kept = {"managedFields": meta["managedFields"]} if "managedFields" in meta else {}
            status = new.get("status")
            new.clear()
            new.update(copy.deepcopy(old))
            new["metadata"] |= kept
            new["status"] = status
        elif subresource == "" and resource.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])
        new |= {"apiVersion": old["apiVersion"], "kind": old["kind"]}

    def _grace(self, resource: Resource, obj: Obj, grace: int | None) -> int:
        """Seconds until an object may go."""
        if resource.plural != "pods":
            return 0
        spec, status = obj.get("spec", {}), obj.get("status", {})
        if "nodeName" not in spec or status.get("phase") in ("Succeeded", "Failed"):
            return 0
        if grace is not None:
            return grace
        return int(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE))

    def _orphan(self, uid: str) -> None:
        for one in self.dependents(uid):
            plural = _plural(one)

            def without(obj: Obj) -> None:
                kept = [owner for owner in owners_of(obj) if owner["uid"] != uid]
                obj["metadata"]["ownerReferences"] = kept

            self.update(plural, *key_of(one), without, subresource="*")

    def _put(self, resource: Resource, key: tuple[str, str], new: Obj, old: Obj | None) -> None:
        self._number += 1
        new["metadata"]["resourceVersion"] = str(self._number)
        self._objects[resource.plural][key] = new
        self._places[new["metadata"]["uid"]] = (resource.plural, *key)
        self._index(resource, key, new, old)
        self._publish(resource, "ADDED" if old is None else "MODIFIED", new, old)

    def _end(self, resource: Resource, obj: Obj) -> None:
        key = key_of(obj)
        old = self._objects[resource.plural].pop(key)
        self._places.pop(obj["metadata"]["uid"], None)
        self._index(resource, key, None, old)
        self._number += 1
        last = copy.deepcopy(obj)
        last["metadata"]["resourceVersion"] = str(self._number)
        self._publish(resource, "DELETED", last, old)

    def _index(
        self, resource: Resource, key: tuple[str, str], new: Obj | None, old: Obj | None
    ) -> None:
        entry = (resource.plural, *key)
        for owner in owners_of(old) if old is not None else ():
            self._dependents[owner["uid"]].discard(entry)
            if not self._dependents[owner["uid"]]:
                del self._dependents[owner["uid"]]
        for owner in owners_of(new) if new is not None else ():
            self._dependents[owner["uid"]].add(entry)

    def _publish(self, resource: Resource, kind: str, new: Obj, old: Obj | None) -> None:
        event = Event(self._number, kind, new, old)
        history = self._history[resource.plural]
        history.append(event)
        if len(history) > 2 * _KEPT:
            self.compacted = max(self.compacted, history[_KEPT].number)
            del history[:_KEPT]
        self.changed.notify_all()
        for listener in self.listeners:
            listener(resource, event)


def _may_go(meta: Obj) -> bool:
    """Whether nothing keeps an object that is being deleted."""
    kept = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
    return "deletionTimestamp" in meta and not kept


def _plural(obj: Mapping[str, Any]) -> str:
    return next(one.plural for one in BY_PLURAL.values() if one.kind == obj["kind"])


plural_of = _plural
