"""Read a spec file, or plain data, into a checked `JobSpec`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode_partial
from muster.spec.files import STDIN, read_text, shown_name
from muster.spec.models import JobSpec
from muster.spec.paths import absolute_job, has_array
from muster.spec.problem_places import Lines, Origins, in_order, placed
from muster.spec.rules import check
from muster.spec.wording import say, suggestion

#: ADS: kinds of its YAML files. apiVersion may be missing.
ADS_KINDS = ("distributed", "job")
_MANIFEST = re.compile(
    r"""^["']?apiVersion["']?[ \t]*:|^["']?kind["']?[ \t]*:[ \t]*"""
    rf"""({"|".join(ADS_KINDS)})\s*$""",
    re.MULTILINE,
)
#: In braces: the same keys, brackets, and text that has neither. Expressions are compiled when they
#: are used: most specs are not in braces.
_IN_BRACES = rf"""
    (?P<key>(?<![\w.-])["']?(?:apiVersion["']?\s*:
        |kind["']?\s*:\s*["']?(?:{"|".join(ADS_KINDS)})["']?(?=\s*[,}}])))
    |(?P<opening>[{{[])|(?P<closing>[]}}])
    |"(?:\\.|[^"\\])*+(?:"|\\?\Z)|(?<!\w)'[^']*+(?:'|\Z)|(?<!\S)\#[^\n]*
"""


class ParsedSpec(Struct, frozen=True):
    """A spec as written, with its valid fields and all problems."""

    spec: JobSpec
    problems: tuple[Problem, ...] = ()
    broken: tuple[str, ...] = ()
    """Paths that could not be read; the spec has their defaults."""
    source: str = ""
    """The file's name in messages."""
    lines: Lines = field(default_factory=dict)
    """Path -> line in the file."""
    origins: Origins = field(default_factory=dict)
    """For files of other formats: the origin of each field."""

    def require_valid(self) -> JobSpec:
        """The spec. Raises InvalidInput with every problem and its line."""
        if self.problems:
            problems = in_order(self.problems, self.lines)
            raise InvalidInput(*(placed(p, self.source, self.lines) for p in problems))
        return self.spec


def read_spec(path: Path, name: str | None = None) -> JobSpec:
    """Read a YAML or JSON file: a spec, the manifest of a JobSet or Job, or a folder of manifests.
    Relative paths are relative to its folder. The default name is the file's.

    name: which job, if there are several. Raises InvalidInput with all problems and their lines.
    """
    return parse_file(path, name).require_valid()


def parse_file(path: Path, name: str | None = None) -> ParsedSpec:
    """Like `read_spec`, but keep the valid fields. Raises InvalidInput if there are none."""
    from muster.spec.yaml import load

    text = "" if os.path.isdir(path) else read_text(path)
    if name is not None or os.path.isdir(path) or is_manifest(text):
        from muster.spec.formats.manifests import read_manifest

        found = read_manifest(path, name)
        return ParsedSpec(found.spec, source=found.source, lines=found.lines, origins=found.origins)
    data, lines = load(text, shown_name(path))
    if isinstance(data, Mapping) and "kind" in data and "spec" in data:
        raise InvalidInput(_unknown_kind(data["kind"], shown_name(path), lines))
    if isinstance(data, Mapping) and data.get("name") is None:
        data = {**data, "name": _default_name(path)}
    return parse_spec(data, source=shown_name(path), lines=lines, folder=path.absolute().parent)


def _unknown_kind(kind: Any, source: str, lines: Lines) -> Problem:
    """The problem of ADS's YAML whose kind is not one of ADS's."""
    text = f"{say(kind)} is not a kind of ADS's YAML"
    hint = suggestion(str(kind), ADS_KINDS)
    return placed(Problem("kind", text, hint), source, lines)


def is_manifest(text: str) -> bool:
    """Whether a file's text is a Kubernetes manifest of any kind or ADS's YAML. A spec has neither
    apiVersion nor kind at the top level."""
    if _MANIFEST.search(text) is not None:
        return True
    if not ("apiVersion" in text or "kind" in text) or not _is_in_braces(text):
        return False
    depth = 0
    for match in re.finditer(_IN_BRACES, text, re.VERBOSE | re.DOTALL):
        if match["key"] and depth == 1:
            return True
        depth += bool(match["opening"]) - bool(match["closing"])
    return False


def _is_in_braces(text: str) -> bool:
    """Whether a text is JSON, or YAML in braces, after comments."""
    start = text.lstrip()
    while start.startswith(("#", "---")):
        end = "---" if start.startswith("---") else "\n"
        start = start.partition(end)[2].lstrip()
    return start.startswith("{")


def has_jobs(text: str) -> bool:
    """Whether a file's text has a JobSet or a Job of Kubernetes, maybe an invalid one."""
    if "jobset.x-k8s.io" in text:
        return True
    # other groups also have a kind Job, and this one has CronJobs
    job = r"""\bkind["']?[ \t]*:[ \t]*["']?Job\b"""
    return "batch/v1" in text and re.search(job, text) is not None


def spec_from_mapping(
    data: Any, *, source: str = "", lines: Lines | None = None, folder: Path | None = None
) -> JobSpec:
    """Read a spec from plain data.

    source: the file's name in messages. lines: path -> line in it. folder: base of relative paths;
    default: the working directory. Raises InvalidInput.
    """
    return parse_spec(data, source=source, lines=lines, folder=folder).require_valid()


def parse_spec(
    data: Any, *, source: str = "", lines: Lines | None = None, folder: Path | None = None
) -> ParsedSpec:
    """Like `spec_from_mapping`, but keep valid fields. Raises InvalidInput if there are none."""
    problems: list[Problem] = []
    folder = folder or Path.cwd()
    made = absolute_job(data, folder)
    if has_array(made):
        from muster.spec.array_files import with_rows  # few jobs have an array

        made = with_rows(made, folder, problems)
    spec = decode_partial(JobSpec, made, problems)
    if spec is None:
        raise InvalidInput(*(placed(problem, source, lines or {}) for problem in problems))
    # a misspelled field is not reported as missing, too
    broken = dict.fromkeys(path for p in problems for path in (p.path, p.meant) if path)
    problems += check(spec, tuple(broken))
    return ParsedSpec(spec, tuple(problems), tuple(broken), source, lines or {})


def parse_received(data: Any) -> ParsedSpec:
    """Like `parse_spec`, for a spec that was sent from another machine: its paths are left as they
    are, and no file is read. Raises InvalidInput if there are no valid fields."""
    problems: list[Problem] = []
    spec = decode_partial(JobSpec, data, problems)
    if spec is None:
        raise InvalidInput(*problems)
    broken = dict.fromkeys(path for p in problems for path in (p.path, p.meant) if path)
    problems += check(spec, tuple(broken))
    return ParsedSpec(spec, tuple(problems), tuple(broken))


def _default_name(path: Path) -> str:
    unnamed = path == STDIN or path.stem in ("job", "muster")
    name = path.absolute().parent.name if unnamed else path.stem
    return job_name_from(name)


def job_name_from(text: str) -> str:
    """A job's default name: `text` without accents, and with - for other characters
    that a name may not have."""
    if not text.isascii():
        import unicodedata

        text = "".join(
            c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c)
        )
    allowed = (c if (c.isascii() and c.isalnum()) or c in "._-" else "-" for c in text)
    cleaned = "".join(allowed).strip("._-")
    return cleaned or "job"
