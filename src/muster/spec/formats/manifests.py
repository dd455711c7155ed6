"""Find the jobs in files and folders of manifests: JobSets, Jobs, and ADS's YAML."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.spec.files import read_text, shown_name
from muster.spec.formats.documents import Document, Manifest, documents, objects
from muster.spec.formats.jobset.config_objects import ConfigObjects
from muster.spec.formats.jobset.model import API_VERSION
from muster.spec.formats.jobset.read import read_jobset
from muster.spec.formats.jobset.single_job import API_VERSION as JOB_API_VERSION
from muster.spec.reader import ADS_KINDS, has_jobs, is_manifest
from muster.spec.wording import close_to, short, suggestion

SUFFIXES = (".yaml", ".yml", ".json")
_GROUP = API_VERSION.partition("/")[0]
_BATCH = JOB_API_VERSION.partition("/")[0]
#: Kinds that start programs. Muster ignores them with a note.
_WORKLOADS = frozenset(
    {"CronJob", "DaemonSet", "Deployment", "Pod", "ReplicaSet", "StatefulSet", "Workflow"}
)
#: Of an object that a job in a cluster may need.
_NOT_APPLIED = "is not applied: `kubectl apply` does"
#: Versions of ConfigMaps and Secrets; without one, it is clear what is meant.
_CORE_VERSIONS = ("", "v1")
_READS = "Muster runs JobSets, Jobs and its own specs: `muster schema` prints their fields"
#: ADS: values of apiVersion, which may be missing.
_ADS_VERSIONS = ("", "v1", "v1.0")


def read_manifests(
    path: Path,
    name: str | None = None,
    refused: list[Problem] | None = None,
    *,
    in_cluster: bool = False,
) -> tuple[Manifest, ...]:
    """The jobs in a file, or in the files of a folder (not of its subfolders).

    name: read only the job of this name. refused, in_cluster: see `read_manifest`. Raises
    InvalidInput with every problem, or if the file has no job.
    """
    return _found_in(path, refused, in_cluster=in_cluster).read(path, name)


def _found_in(path: Path, refused: list[Problem] | None, *, in_cluster: bool = False) -> _Search:
    """The jobs in a file or folder, which are not read yet."""
    search = _Search(refused, in_cluster=in_cluster)
    if os.path.isdir(path):
        for file in sorted(path.iterdir()):
            if file.suffix in SUFFIXES and file.is_file():
                search.add_file(file, alone=False)
    else:
        search.add_file(path, alone=True)
    return search


def find_jobset(path: Path, name: str | None = None) -> tuple[Document, tuple[str, ...]] | None:
    """The JobSet of a file or folder as it is there, and notes about what else is there; None if
    its only job is another one, or there are several, or none that can be found.

    name: see `read_manifests`. Raises InvalidInput for a file that cannot be read.
    """
    search = _found_in(path, None)
    chosen = [job for job in search.jobs if name in (None, job.name)]
    if len(chosen) != 1 or search.problems or chosen[0].document.data["kind"] != "JobSet":
        return None
    return chosen[0].document, tuple(search.others)


def count_jobs(path: Path, name: str | None = None) -> int:
    """How many jobs a file or folder has, read or not. Raises InvalidInput for a file that cannot
    be read."""
    return len([job for job in _found_in(path, None).jobs if name in (None, job.name)])


def read_manifest(
    path: Path,
    name: str | None = None,
    refused: list[Problem] | None = None,
    *,
    in_cluster: bool = False,
) -> Manifest:
    """The only job in a file or folder, or the one of the given name. Raises InvalidInput.

    refused: if given, it receives the problems of ADS's YAML for which a job can still be made.
    in_cluster: whether engine kubernetes may run the job, so that what only a cluster has or can do
    is kept; otherwise it is refused.
    """
    found = read_manifests(path, name, refused, in_cluster=in_cluster)
    if len(found) > 1:
        names = [str(manifest.spec.name) for manifest in found]
        text = f"there are {len(found)} jobs here: {', '.join(names)}"
        raise InvalidInput(Problem("", text, f"name one: {path}#{names[0]}", shown_name(path)))
    return found[0]


class _FoundJob(Struct, frozen=True):
    """A document that describes a job, and the function that reads it."""

    document: Document
    name: str
    read: Callable[[Document], Manifest]


class _Search:
    """Collects the jobs of files."""

    def __init__(self, refused: list[Problem] | None, *, in_cluster: bool) -> None:
        self._refused = refused
        self.jobs: list[_FoundJob] = []
        self.problems: list[Problem] = []
        #: Sentences about objects besides jobs, for a cluster to which only a JobSet is applied.
        self.others: list[str] = []
        self._notes: list[str] = []
        self._kinds: list[str] = []
        self._first = ""  # the place of the first object that is not a job
        self._objects = ConfigObjects(in_cluster=in_cluster)

    def add_file(self, path: Path, *, alone: bool) -> None:
        """Search a file. alone: the user named the file itself, not its folder."""
        text = read_text(path)
        self._objects.add_file(shown_name(path))
        if not alone and not is_manifest(text):
            return
        try:
            parts = documents(text, shown_name(path))
        except InvalidInput as error:
            if alone or has_jobs(text):
                self.problems += error.problems
            else:
                self._notes.append(f"{path} is ignored: {error.problems[0].message}")
            return
        for part in parts:
            for one in objects(part):
                self._add(one)

    def _add(self, part: Document) -> None:
        data = part.data
        if not isinstance(data, Mapping) or "kind" not in data:
            text = "is not a Kubernetes object: it has no kind"
            self._problem(part, "", text, "remove it, or put it into another file")
            return
        kind, version = str(data["kind"]), str(data.get("apiVersion", ""))
        if kind in ADS_KINDS and not version.startswith(f"{_BATCH}/"):
            from muster.spec.formats.ads.read import ads_name, read_ads

            self.jobs.append(
                _FoundJob(part, ads_name(data), partial(read_ads, refused=self._refused))
            )
            return
        metadata = data.get("metadata")
        name = _name(metadata) if isinstance(metadata, Mapping) else ""
        if kind == "JobSet" and version == API_VERSION:
            self.jobs.append(_FoundJob(part, name, partial(read_jobset, objects=self._objects)))
        elif kind == "Job" and version == JOB_API_VERSION:
            from muster.spec.formats.jobset.plain_job_read import read_job

            self.jobs.append(_FoundJob(part, name, partial(read_job, objects=self._objects)))
        elif kind in ("ConfigMap", "Secret") and version in _CORE_VERSIONS:
            self._kinds.append(kind)
            self._first = self._first or f"{part.source}:{part.lines.get('kind', 1)}"
            self._objects.add(part)
            self.others.append(_not_applied(part))
        elif wrong := _not_read(kind, version, data):
            self._problem(part, *wrong)
        else:
            self._ignore(part, kind, version, name)

    def _ignore(self, part: Document, kind: str, version: str, name: str) -> None:
        self._kinds.append(f"{kind} of {version}" if kind == "Job" else kind)
        self._first = self._first or f"{part.source}:{part.lines.get('kind', 1)}"
        why = _NOT_APPLIED if self._objects.in_cluster else "is not needed"
        self.others.append(_not_applied(part))
        if kind in _WORKLOADS:
            why = "is ignored: Muster runs JobSets and Jobs"
        elif kind == "Job":
            why = f"is ignored: Muster runs Jobs of {JOB_API_VERSION}, not of {version}"
        self._notes.append(f"{_shown(part)} {why}")

    def _problem(self, part: Document, path: str, text: str, hint: str) -> None:
        line = part.lines.get(path, part.lines.get("", 1))
        self.problems.append(Problem(path, text, hint, f"{part.source}:{line}"))

    def read(self, path: Path, name: str | None) -> tuple[Manifest, ...]:
        """Read the jobs that were found, or the one of the given name. Raises InvalidInput."""
        chosen = [job for job in self.jobs if name in (None, job.name)]
        problems = [*self.problems, *(_duplicate_names(chosen) if name is None else ())]
        made = []
        for job in chosen:
            try:
                made.append(job.read(job.document))
            except InvalidInput as error:
                problems += error.problems
        if not chosen and not problems:
            problems.append(self._none(path, name))
        if problems:
            raise InvalidInput(*problems)
        if name is None:
            self._notes += [f"{_shown(one)} is not needed" for one in self._objects.unused()]
        made[0] = replace(made[0], notes=(*self._notes, *made[0].notes))
        return tuple(made)

    def _none(self, path: Path, name: str | None) -> Problem:
        if self.jobs:
            names = [job.name for job in self.jobs]
            return Problem(
                f"#{name}",
                f"no job of that name in {shown_name(path)}",
                suggestion(name or "", names),
            )
        if not self._kinds:
            what = "is empty" if path.is_file() else "has no manifest"
            return Problem("", what, _READS, shown_name(path))
        kinds = ", ".join(dict.fromkeys(self._kinds))
        hint = _READS
        if {"Kustomization", "Component"} & set(self._kinds):
            hint = "render it first: `kustomize build`"
        text = f"no JobSet or Job in this file, but {kinds}"
        return Problem("kind", text, hint, self._first or shown_name(path))


def _shown(part: Document) -> str:
    metadata = part.data.get("metadata")
    name = _name(metadata) if isinstance(metadata, Mapping) else ""
    return f"{part.data['kind']} {name or '(no name)'} ({part.place})"


def _not_applied(part: Document) -> str:
    return f"{_shown(part)} {_NOT_APPLIED}"


def _name(metadata: Mapping[str, Any]) -> str:
    """An object's name, or the fixed part of a generated name."""
    return str(metadata.get("name") or str(metadata.get("generateName") or "").rstrip("-"))


def _not_read(kind: str, version: str, data: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The path, text and hint of the problem of an object that was probably meant to be a job."""
    versions = {"JobSet": API_VERSION, "Job": JOB_API_VERSION}
    of_batch = version.startswith(f"{_BATCH}/")
    if kind == "JobSet" or (kind == "Job" and (of_batch or _has_pods(version, data))):
        text = f"{version!r} is not a version Muster reads" if version else "is missing"
        return "apiVersion", text, f"write {versions[kind]}"
    if version in _ADS_VERSIONS and "spec" in data and close_to(kind, ADS_KINDS):
        text = f"{short(kind)} is not a kind of ADS's YAML"
        return "kind", text, suggestion(kind, ADS_KINDS)
    if version.startswith(f"{_GROUP}/") or close_to(kind, ["JobSet"], cutoff=0.8):
        return "kind", f"Muster does not read a {kind}", suggestion(kind, ["JobSet"])
    if of_batch and kind not in _WORKLOADS:
        return "kind", f"Muster does not read a {kind}", suggestion(kind, versions)
    return None


def _has_pods(version: str, data: Mapping[str, Any]) -> bool:
    """Whether a Job without a group is Kubernetes' own: ADS's has no template of pods."""
    spec = data.get("spec")
    return version in _ADS_VERSIONS and isinstance(spec, Mapping) and "template" in spec


def _duplicate_names(jobs: list[_FoundJob]) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for job in jobs:
        place = job.document.place
        if job.name and job.name in first:
            text = f"{job.name!r} is also the name of the job at {first[job.name]}"
            yield Problem("metadata.name", text, "give one of them another name", place)
        first.setdefault(job.name, place)
