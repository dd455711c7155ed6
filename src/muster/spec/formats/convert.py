"""Convert a file from one format to another."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from muster.errors import Problem
from muster.secrets import HIDDEN, hidden, redacted
from muster.spec.files import read_text
from muster.spec.formats.jobset.write import write_jobset
from muster.spec.formats.manifests import read_manifest
from muster.spec.formats.spec_write import write_spec
from muster.spec.formats.yaml_write import dump
from muster.spec.models import JobSpec
from muster.spec.reader import is_manifest, read_spec

#: The fields of a Secret with its values.
_OF_SECRETS = ("stringData", "data")
_HIDDEN = "secrets are written as ***; write them in, or convert with --show-secrets"


class Converted(NamedTuple):
    """What a file was converted to."""

    #: YAML.
    text: str
    notes: list[str]
    #: Why it cannot be used as it is.
    warnings: list[str]


def convert_file(
    path: Path, name: str | None, to: str | None, *, secrets: bool = False
) -> Converted:
    """Convert a file. Raises InvalidInput.

    to: `jobset` or `muster`; default: the opposite of the input format. secrets: write secrets
    instead of `***`.
    """
    foreign = os.path.isdir(path) or is_manifest(read_text(path))
    refused: list[Problem] = []
    warnings: list[str] = []
    spec, notes = _read(path, name, refused, foreign=foreign)
    if to == "muster" or (to is None and foreign):
        made = [write_spec(spec)]
    else:
        written = write_jobset(spec)
        made = [*written.objects, written.data]
        notes = [*notes, *(str(one) for one in written.losses if not one.is_decisive)]
        warnings = [str(one) for one in written.losses if one.is_decisive]
    shown = made if secrets else [_without_secrets(data) for data in made]
    if shown != made:
        notes = [*notes, _HIDDEN]
    comments = _comments(refused)
    text = "---\n".join(map(dump, shown))
    return Converted((comments if secrets else redacted(comments)) + text, notes, warnings)


def _without_secrets(data: dict[str, Any]) -> Any:
    if data.get("kind") != "Secret":
        return hidden(data)
    fields = {name: dict.fromkeys(data[name], HIDDEN) for name in _OF_SECRETS if name in data}
    return {**data, **fields}


def _comments(refused: Iterable[Problem]) -> str:
    """The problems as comments, for the user to resolve by hand."""
    return "".join(f"# refused: {line}\n" for one in refused for line in str(one).splitlines())


def _read(
    path: Path, name: str | None, refused: list[Problem], *, foreign: bool
) -> tuple[JobSpec, list[str]]:
    if not foreign:
        return read_spec(path), []
    manifest = read_manifest(path, name, refused, in_cluster=True)
    return manifest.spec, [*manifest.notes, *manifest.lost]
