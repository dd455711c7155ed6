"""From one file format to another, as text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from muster.errors import Problem
from muster.secrets import hidden, redacted
from muster.spec.files import read_text
from muster.spec.formats.jobset_write import write_jobset
from muster.spec.formats.manifests import read_manifest
from muster.spec.formats.muster_write import write_spec
from muster.spec.formats.yaml_write import dump
from muster.spec.models import JobSpec
from muster.spec.reader import is_manifest, read_spec

_HIDDEN = "secrets are written as ***; write them in, or convert with --show-secrets"


def convert_file(
    path: Path, name: str | None, to: str | None, *, secrets: bool = False
) -> tuple[str, list[str]]:
    """The YAML, and what is to be known about it. to: `jobset` or `muster`; default: what it is
    not. secrets: write them as they are. Raises InvalidInput.
    """
    theirs = os.path.isdir(path) or is_manifest(read_text(path))
    refused: list[Problem] = []
    spec, notes = _read(path, name, refused, theirs=theirs)
    if to == "muster" or (to is None and theirs):
        data = write_spec(spec)
    else:
        written = write_jobset(spec)
        data, notes = written.data, [*notes, *map(str, written.losses)]
    shown = data if secrets else hidden(data)
    if shown != data:
        notes = [*notes, _HIDDEN]
    comments = _comments(refused)
    return (comments if secrets else redacted(comments)) + dump(shown), notes


def _comments(refused: Iterable[Problem]) -> str:
    """What could not be converted as it is, for whoever writes the rest."""
    return "".join(f"# refused: {line}\n" for one in refused for line in str(one).splitlines())


def _read(
    path: Path, name: str | None, refused: list[Problem], *, theirs: bool
) -> tuple[JobSpec, list[str]]:
    if not theirs:
        return read_spec(path), []
    manifest = read_manifest(path, name, refused)
    return manifest.spec, [*manifest.notes, *manifest.unsaid]
