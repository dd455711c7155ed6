"""Read ADS's YAML as a `JobSpec`: `kind: distributed` and `kind: job`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode_partial
from muster.spec.formats.ads import model as ads
from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.distributed import distributed_job
from muster.spec.formats.ads.job import single_job
from muster.spec.formats.ads.unread_fields import TABLES
from muster.spec.formats.documents import Document, Manifest, unfilled_placeholders
from muster.spec.formats.fields import FieldFilter
from muster.spec.problem_places import at_origin, follows, in_order, placed
from muster.spec.reader import parse_spec

#: `kind` of a document -> its model.
KINDS: Mapping[str, Any] = {"distributed": ads.Distributed, "job": ads.Job}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
#: Placeholders in these fields are checked by the code that uses the field.
_CHECKED_WHERE_USED = re.compile(r"\.(image|workDir|outputUri|shapeName)$|\.storageMount\b")
#: The hint for a missing field.
_PAGE = "see https://muster-jobs.github.io/muster/reference/ads/"
_SYNCED = ("WORKSPACE", "WORKSPACE_PREFIX")
#: An entry of a list of variables.
_OF_ENV = re.compile(r"spec(\.\w+)*\.env\[\d+\]")
Convert = Callable[[Any, Conversion], dict[str, Any]]


def read_ads(document: Document, refused: list[Problem] | None = None) -> Manifest:
    """The job that a document describes. Raises InvalidInput with every problem and its line.

    refused: if given, it receives the problems, and the job is made without the fields concerned.
    """
    kind = str(document.data["kind"])
    problems: list[Problem] = []
    conversion = Conversion(Path(document.source).absolute().parent)
    data = FieldFilter(TABLES, conversion.notes, problems).apply(KINDS[kind], document.data)
    # placeholders may stay in fields that are not used
    problems += [p for p in unfilled_placeholders(data) if _is_used(p, data)]
    model = decode_partial(KINDS[kind], data, problems)
    problems = [
        p if p.hint or p.message != "is missing" else p._replace(hint=_PAGE) for p in problems
    ]
    if model is None:
        raise InvalidInput(*_place_problems(problems, document))
    convert: Convert = distributed_job if kind == "distributed" else single_job
    made = convert(model.spec, conversion)
    origins = conversion.origins
    problems += _independent(conversion.problems, problems)
    shown = _fill_variables(str(made.get("name") or ""))
    made["name"] = _name(shown) or _stem(document)
    if shown and shown != made["name"]:
        made["display_name"] = shown
        origins["display_name"] = origins["name"]
    parsed = parse_spec(made, folder=conversion.folder)
    fatal = [at_origin(problem, origins) for problem in parsed.problems]
    fatal = _independent(fatal, problems)
    # a job whose spec breaks a rule cannot run, even without the refused fields
    if fatal or (problems and refused is None):
        raise InvalidInput(*_place_problems([*problems, *fatal], document))
    if refused is not None:
        refused += _place_problems(problems, document)
    return Manifest(
        parsed.spec,
        conversion.notes.lines(),
        document.place,
        source=document.source,
        lines=document.lines,
        origins=origins,
    )


def _independent(found: Sequence[Problem], before: Sequence[Problem]) -> list[Problem]:
    """The problems that do not follow from a field that is wrong or misspelt."""
    broken = [path for problem in before for path in (problem.path, problem.meant) if path]
    return [problem for problem in found if not follows(problem.path, broken)]


def _place_problems(problems: Sequence[Problem], document: Document) -> list[Problem]:
    """Each problem once, with its line, in the order of the file."""
    ordered = in_order(problems, document.lines)
    return [*dict.fromkeys(placed(p, document.source, document.lines) for p in ordered)]


def _is_used(problem: Problem, data: Any) -> bool:
    """Whether a value that was not filled in is used."""
    if _VARIABLE.search(problem.message) or _CHECKED_WHERE_USED.search(problem.path):
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
    """The name of a document's job; empty if it has none."""
    spec = data.get("spec")
    if not isinstance(spec, Mapping):
        return ""
    cluster = spec.get("cluster")
    inner = cluster.get("spec") if isinstance(cluster, Mapping) else spec
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return _name(_fill_variables(str(name))) if name else ""


def _stem(document: Document) -> str:
    return _name(Path(document.source).stem) or "job"


def _name(text: str) -> str:
    """`text` with the characters that a job's name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")


def _fill_variables(text: str) -> str:
    """ADS: ${VAR} in a name is replaced from the submitter's environment; unknown ones stay."""
    return _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), text)
