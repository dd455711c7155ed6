"""ADS's YAML as a `JobSpec`: `kind: distributed` and `kind: job`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.decode import salvage
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_distributed import distributed_job
from muster.spec.formats.ads_job import single_job
from muster.spec.formats.ads_tables import TABLES
from muster.spec.formats.documents import Document, forgotten
from muster.spec.formats.fields import Sieve
from muster.spec.formats.jobset_read import Manifest
from muster.spec.formats.notes import Notes
from muster.spec.places import Origin, at_origin, follows, in_order, placed
from muster.spec.reader import written_from

#: What they write at the top, and the class it is.
KINDS: Mapping[str, Any] = {"distributed": ads.Distributed, "job": ads.Job}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
#: What is looked at where it is used, if it is: images, and places for what is copied.
_ELSEWHERE = re.compile(r"\.(image|workDir|outputUri|shapeName)$|\.storageMount\b")
_SYNCED = ("WORKSPACE", "WORKSPACE_PREFIX")
#: A variable in any of the lists there are, each below names that ADS knows.
_OF_ENV = re.compile(r"spec(\.\w+)*\.env\[\d+\]")
Convert = Callable[..., dict[str, Any]]


def read_ads(document: Document, refused: list[Problem] | None = None) -> Manifest:
    """The job that a document describes. refused: takes what cannot be honoured, where the rest
    makes a job. Raises InvalidInput with every problem and its line."""
    kind = str(document.data["kind"])
    problems: list[Problem] = []
    notes = Notes()
    data = Sieve(notes, problems, TABLES).clean(KINDS[kind], document.data)
    # what is not used need not be filled in
    problems += [p for p in forgotten(data) if _is_used(p, data)]
    model = salvage(KINDS[kind], data, problems)
    if model is None:
        raise InvalidInput(*_placed(problems, document))
    convert: Convert = distributed_job if kind == "distributed" else single_job
    folder = Path(document.source).absolute().parent
    origins: dict[str, Origin] = {}
    later: list[Problem] = []
    made = convert(model.spec, folder, notes, later, origins)
    problems += _without_followers(later, problems)
    shown = _filled(str(made.get("name") or ""))
    made["name"] = _name(shown) or _stem(document)
    if shown and shown != made["name"]:
        made["display_name"] = shown
        origins["display_name"] = origins["name"]
    written = written_from(made, folder=folder)
    wrong = [at_origin(problem, origins) for problem in written.problems]
    wrong = _without_followers(wrong, problems)
    if wrong or (problems and refused is None):
        raise InvalidInput(*_placed([*problems, *wrong], document))
    if refused is not None:
        refused += _placed(problems, document)
    lines = document.lines
    source = document.source
    return Manifest(written.spec, notes.lines(), document.place, (), source, lines, origins)


def _without_followers(found: Sequence[Problem], before: Sequence[Problem]) -> list[Problem]:
    """Those that are not about something that is wrong, or misspelt, already."""
    broken = [path for problem in before for path in (problem.path, problem.meant) if path]
    return [problem for problem in found if not follows(problem.path, broken)]


def _placed(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Each once, as one reads the file, with its line."""
    ordered = in_order(problems, document.lines)
    return [*dict.fromkeys(placed(p, document.source, document.lines) for p in ordered)]


def _is_used(problem: Problem, data: Any) -> bool:
    """Whether what was not filled in would be missed."""
    if _VARIABLE.search(problem.message) or _ELSEWHERE.search(problem.path):
        return False
    variable, _, field = problem.path.rpartition(".")
    if field != "value":
        return True
    if not _OF_ENV.fullmatch(variable):
        return True
    for name, number in re.findall(r"(\w+)|\[(\d+)\]", variable):
        data = data[name] if name else data[int(number)]
    return data.get("name") not in _SYNCED


def ads_name(data: Mapping[str, Any]) -> str:
    """What a document calls its job; empty if it does not."""
    spec = data.get("spec")
    if not isinstance(spec, Mapping):
        return ""
    cluster = spec.get("cluster")
    inner = cluster.get("spec") if isinstance(cluster, Mapping) else spec
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return _name(_filled(str(name))) if name else ""


def _stem(document: Document) -> str:
    return _name(Path(document.source).stem) or "job"


def _name(text: str) -> str:
    """As a job can be called."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")


def _filled(text: str) -> str:
    """ADS: ${VAR} in a name is the submitter's variable; unknown ones stay."""
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), text)
