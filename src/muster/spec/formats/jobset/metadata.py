"""Labels and annotations of a JobSet's objects, which a spec keeps and a run does not use."""

from __future__ import annotations

from collections.abc import Iterable

from muster.spec.formats.jobset.cluster_read import KUBERNETES_ONLY
from muster.spec.formats.jobset.kubernetes import ObjectMeta
from muster.spec.formats.notes import Notes
from muster.spec.models import Metadata

#: Kubernetes: the annotation with an object's description.
DESCRIPTION = "kubernetes.io/description"
#: kubectl: the annotation with the whole applied file.
_FILE = "kubectl.kubernetes.io/last-applied-configuration"
#: Prefix of keys that other programs read -> what happens to them here.
_READERS = {
    "kueue.x-k8s.io/": KUBERNETES_ONLY,
    "alpha.jobset.sigs.k8s.io/": KUBERNETES_ONLY,
}
_KEPT = KUBERNETES_ONLY


def annotations_of(meta: ObjectMeta, *others: str) -> dict[str, str]:
    """The annotations that a spec keeps. others: keys that it keeps in other fields."""
    return {key: text for key, text in meta.annotations.items() if key not in (_FILE, *others)}


def metadata_of(meta: ObjectMeta) -> Metadata:
    """The labels and annotations of a group's Jobs or pods."""
    return Metadata(labels=dict(meta.labels), annotations=annotations_of(meta))


def note_labels(meta: ObjectMeta, notes: Notes, group: str = "") -> None:
    """Note labels that other programs would act on."""
    _note("label", meta.labels, notes, group, "")


def note_annotations(meta: ObjectMeta, notes: Notes, group: str = "", *, pod: bool = False) -> None:
    """Note annotations; of pods only those with a known reader, as programs may read others."""
    _note("annotation", annotations_of(meta, DESCRIPTION), notes, group, "" if pod else _KEPT)


def _note(what: str, keys: Iterable[str], notes: Notes, group: str, otherwise: str) -> None:
    for key in keys:
        prefix = key[: key.find("/") + 1]
        why = _READERS.get(prefix, otherwise)
        if why:
            notes.add(f"{what} {key}", why, group)
