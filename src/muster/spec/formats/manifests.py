"""Files and folders of Kubernetes manifests: which of the objects in them Muster runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.files import called, read_text
from muster.spec.formats.documents import Document, documents, objects
from muster.spec.formats.jobset_model import API_VERSION
from muster.spec.formats.jobset_read import Manifest, read_jobset
from muster.spec.reader import ADS_KINDS, is_manifest
from muster.spec.wording import close_to, suggestion

SUFFIXES = (".yaml", ".yml", ".json")
_GROUP = API_VERSION.partition("/")[0]
#: Not run by anybody, so nobody misses them.
_WORKLOADS = frozenset(
    {"CronJob", "DaemonSet", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet", "Workflow"}
)


def read_manifests(
    path: Path, name: str | None = None, refused: list[Problem] | None = None
) -> tuple[Manifest, ...]:
    """The JobSets in a file or a folder (not below it), with what there is to know about them.

    name: only the one of that name. refused: see `read_manifest`. Raises InvalidInput with every
    problem, also if there is none.
    """
    found = _Found(refused)
    if os.path.isdir(path):
        for file in sorted(path.iterdir()):
            if file.suffix in SUFFIXES and file.is_file():
                found.file(file, alone=False)
    else:
        found.file(path, alone=True)
    return found.manifests(path, name)


def read_manifest(
    path: Path, name: str | None = None, refused: list[Problem] | None = None
) -> Manifest:
    """The only JobSet in a file or a folder, or the one of that name. refused: takes what of ADS's
    YAML cannot be honoured, where the rest makes a job. Raises InvalidInput."""
    found = read_manifests(path, name, refused)
    if len(found) > 1:
        names = [str(manifest.spec.name) for manifest in found]
        text = f"there are {len(found)} JobSets here: {', '.join(names)}"
        raise InvalidInput(Problem("", text, f"name one: {path}#{names[0]}", called(path)))
    return found[0]


class _Jobset(Struct, frozen=True):
    """A JobSet, or what else describes a job, and who reads it."""

    document: Document
    name: str
    read: Callable[[Document], Manifest] = read_jobset


class _Found:
    """What is in the files so far."""

    def __init__(self, refused: list[Problem] | None) -> None:
        self._refused = refused
        self._jobsets: list[_Jobset] = []
        self._problems: list[Problem] = []
        self._notes: list[str] = []
        self._kinds: list[str] = []
        self._first = ""  # where the first of those is

    def file(self, path: Path, *, alone: bool) -> None:
        """Look through a file. alone: it is meant itself, not only the folder it is in."""
        text = read_text(path)
        if not alone and not is_manifest(text):
            return
        try:
            parts = documents(text, called(path))
        except InvalidInput as error:
            if alone or _GROUP in text:
                self._problems += error.problems
            else:
                self._notes.append(f"{path} is ignored: {error.problems[0].message}")
            return
        for part in parts:
            for one in objects(part):
                self._document(one)

    def _document(self, part: Document) -> None:
        data = part.data
        if not isinstance(data, Mapping) or "kind" not in data:
            text = "no Kubernetes object: it has no kind"
            self._problem(part, "", text, "remove it, or put it into a file of its own")
            return
        kind, version = str(data["kind"]), str(data.get("apiVersion", ""))
        if kind in ADS_KINDS:
            from muster.spec.formats.ads_read import ads_name, read_ads

            self._jobsets.append(
                _Jobset(part, ads_name(data), partial(read_ads, refused=self._refused))
            )
            return
        metadata = data.get("metadata")
        name = _name(metadata) if isinstance(metadata, Mapping) else ""
        if kind == "JobSet" and version == API_VERSION:
            self._jobsets.append(_Jobset(part, name))
        elif kind == "JobSet":
            what = f"{version!r} is not a version Muster reads" if version else "is missing"
            self._problem(part, "apiVersion", what, f"write {API_VERSION}")
        elif version.startswith(f"{_GROUP}/") or close_to(kind, ["JobSet"], cutoff=0.8):
            hint = suggestion(kind, ["JobSet"])
            self._problem(part, "kind", f"Muster does not read a {kind}", hint)
        else:
            self._kinds.append(kind)
            self._first = self._first or f"{part.source}:{part.lines.get('kind', 1)}"
            why = "is ignored: Muster runs JobSets" if kind in _WORKLOADS else "is not needed"
            self._notes.append(f"{kind} {name or '(no name)'} ({part.place}) {why}")

    def _problem(self, part: Document, path: str, text: str, hint: str) -> None:
        line = part.lines.get(path, part.lines.get("", 1))
        self._problems.append(Problem(path, text, hint, f"{part.source}:{line}"))

    def manifests(self, path: Path, name: str | None) -> tuple[Manifest, ...]:
        """What was found, read. Raises InvalidInput."""
        chosen = [jobset for jobset in self._jobsets if name in (None, jobset.name)]
        problems = [*self._problems, *(_twice(chosen) if name is None else ())]
        made = []
        for jobset in chosen:
            try:
                made.append(jobset.read(jobset.document))
            except InvalidInput as error:
                problems += error.problems
        if not chosen and not problems:
            problems.append(self._none(path, name))
        if problems:
            raise InvalidInput(*problems)
        made[0] = replace(made[0], notes=(*self._notes, *made[0].notes))
        return tuple(made)

    def _none(self, path: Path, name: str | None) -> Problem:
        if self._jobsets:
            names = [jobset.name for jobset in self._jobsets]
            return Problem(
                f"#{name}",
                f"no JobSet of that name in {called(path)}",
                suggestion(name or "", names),
            )
        kinds = ", ".join(dict.fromkeys(self._kinds)) or "nothing"
        hint = "Muster runs JobSets, and specs of its own: docs/spec.md"
        if {"Kustomization", "Component"} & set(self._kinds):
            hint = "render it first: `kustomize build`"
        text = f"there is no JobSet here, but {kinds}"
        return Problem("kind", text, hint, self._first or called(path))


def _name(metadata: Mapping[str, Any]) -> str:
    """What an object is called; of a generated name, what is known of it."""
    return str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-"))


def _twice(jobsets: list[_Jobset]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for jobset in jobsets:
        place = jobset.document.place
        if jobset.name and jobset.name in first:
            text = f"{jobset.name!r} is the name of the JobSet at {first[jobset.name]}, too"
            yield Problem("metadata.name", text, "give one of them another name", place)
        first.setdefault(jobset.name, place)
