"""Labels and annotations of a JobSet's objects: kept for whoever reads them on Kubernetes, and what
a run on this machine has to say of them."""

from __future__ import annotations

from collections.abc import Iterable

from muster.spec.formats.kubernetes import ObjectMeta
from muster.spec.formats.notes import Notes
from muster.spec.models import Metadata

#: Kubernetes: the annotation for what people should know of an object.
DESCRIPTION = "kubernetes.io/description"
#: kubectl: the whole file again.
_FILE = "kubectl.kubernetes.io/last-applied-configuration"
#: Who reads keys with this prefix, and what comes of it here.
_READERS = {
    "kueue.x-k8s.io/": "is kept, and not used here: a run starts at once",
    "alpha.jobset.sigs.k8s.io/": "is kept, and not used here: all nodes are on one machine",
}
_KEPT = "is kept, and not used here"


def annotations_of(meta: ObjectMeta, *others: str) -> dict[str, str]:
    """What of the annotations a spec keeps as such. others: keys that are said in another way."""
    return {key: text for key, text in meta.annotations.items() if key not in (_FILE, *others)}


def metadata_of(meta: ObjectMeta) -> Metadata:
    """What a group keeps of its Jobs or pods."""
    return Metadata(labels=dict(meta.labels), annotations=annotations_of(meta))


def note_labels(meta: ObjectMeta, notes: Notes, group: str = "") -> None:
    """Labels are for people, too; what others would do with them does not happen."""
    _note("label", meta.labels, notes, group, "")


def note_annotations(meta: ObjectMeta, notes: Notes, group: str = "", *, pod: bool = False) -> None:
    """pod: whether programs may ask for them, so that only those with a known reader are noted."""
    _note("annotation", annotations_of(meta, DESCRIPTION), notes, group, "" if pod else _KEPT)


def _note(what: str, keys: Iterable[str], notes: Notes, group: str, otherwise: str) -> None:
    for key in keys:
        prefix = key[: key.find("/") + 1]
        why = _READERS.get(prefix, otherwise)
        if why:
            notes.add(f"{what} {key}", why, group)
