"""Delete what belongs to objects that are gone, and what is in namespaces that are deleted."""

from __future__ import annotations

from collections.abc import Iterable

from support.kube.manager import Key
from support.kube.objects import ALL, ApiError, Obj, Resource, key_of, owners_of
from support.kube.storage import CONTENT, FOREGROUND, Event, Storage, plural_of


class GarbageCollector:
    """Keys are a kind with a namespace, and a name."""

    batch = 0.0

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def keys(self, resource: Resource, event: Event) -> Iterable[Key]:
        meta = event.new["metadata"]
        if event.kind == "DELETED":
            for one in self._storage.dependents(meta["uid"]):
                yield _key(one)
            for owner in owners_of(event.new):
                yield from self._waiting(owner["uid"])
            if meta.get("namespace"):
                yield "namespaces/", meta["namespace"]
        elif "deletionTimestamp" in meta or owners_of(event.new):
            yield _key(event.new)

    def _waiting(self, uid: str) -> Iterable[Key]:
        """The owner, if it waits for what belongs to it."""
        one = self._storage.by_uid(uid)
        if one is not None and FOREGROUND in one["metadata"].get("finalizers", ()):
            yield _key(one)

    def reconcile(self, key: Key) -> float | None:
        plural, _, namespace = key[0].partition("/")
        obj = self._storage.find(plural, namespace, key[1])
        if obj is None:
            return None
        meta = obj["metadata"]
        finalizers = meta.get("finalizers", ())
        if "deletionTimestamp" in meta:
            if CONTENT in finalizers:
                self._empty(obj)
            elif FOREGROUND in finalizers:
                self._foreground(plural, obj)
            return None
        owners = owners_of(obj)
        if owners and not any(self._storage.has_uid(one["uid"]) for one in owners):
            self._storage.delete(plural, namespace, key[1], uid=meta["uid"])
        return None

    def _foreground(self, plural: str, obj: Obj) -> None:
        left = self._storage.dependents(obj["metadata"]["uid"])
        for one in left:
            if "deletionTimestamp" not in one["metadata"]:
                self._delete(one, "Foreground")
        blocking = [
            one
            for one in self._storage.dependents(obj["metadata"]["uid"])
            if any(
                owner.get("blockOwnerDeletion") and owner["uid"] == obj["metadata"]["uid"]
                for owner in owners_of(one)
            )
        ]
        if not blocking:
            self._remove(plural, obj, FOREGROUND)

    def _empty(self, namespace: Obj) -> None:
        name = namespace["metadata"]["name"]
        left = [
            one
            for resource in ALL
            if resource.namespaced
            for one in self._storage.listed(resource.plural, name)
        ]
        for one in left:
            if "deletionTimestamp" not in one["metadata"]:
                self._delete(one, "Background")
        if not any(
            self._storage.listed(resource.plural, name) for resource in ALL if resource.namespaced
        ):
            self._remove("namespaces", namespace, CONTENT)

    def _delete(self, obj: Obj, propagation: str) -> None:
        try:
            self._storage.delete(plural_of(obj), *key_of(obj), propagation=propagation)
        except ApiError:
            pass  # it is gone

    def _remove(self, plural: str, obj: Obj, finalizer: str) -> None:
        def without(new: Obj) -> None:
            kept = [one for one in new["metadata"].get("finalizers", ()) if one != finalizer]
            new["metadata"]["finalizers"] = kept

        self._storage.update(plural, *key_of(obj), without, subresource="*")


def _key(obj: Obj) -> Key:
    namespace, name = key_of(obj)
    return f"{plural_of(obj)}/{namespace}", name
