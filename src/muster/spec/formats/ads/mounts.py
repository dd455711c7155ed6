"""ADS's storage mounts, inputs and outputs as mounts of a spec (plain data)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Any

from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.model import RuntimeSpec, StorageMount
from muster.spec.formats.documents import is_placeholder
from muster.spec.problem_places import Origin

#: Path of the field in the YAML -> the mount.
Mounts = dict[str, dict[str, Any]]


def storage_mounts(listed: Iterable[StorageMount], conversion: Conversion) -> Mounts:
    """ADS: sources are `oci://bucket@namespace/prefix`, `IP:export` or `IP@export`; a relative
    destination is below /mnt."""
    made: Mounts = {}
    for number, mount in enumerate(listed):
        path = f"spec.infrastructure.spec.storageMount[{number}]"
        source = mount.src
        if is_placeholder(source) or is_placeholder(mount.dest):
            text = f"{source} to {mount.dest} was not filled in"
            conversion.refuse(path, text, "fill it in, or leave it out")
            continue
        if "://" not in source:
            host, _, export = source.replace("@", ":", 1).partition(":")
            if host.startswith("ocid") or not export:
                text = f"{source} means something in Oracle's cloud only"
                hint = "write IP:/EXPORT, or an oci://bucket@namespace/prefix, or leave it out"
                conversion.refuse(f"{path}.src", text, hint)
                continue
            source = f"nfs://{host}/{export.lstrip('/')}"
        made[f"{path}.src"] = {"source": source, "path": mount.dest}
    return made


def job_mounts(
    listed: Iterable[StorageMount], runtime: RuntimeSpec, path: str, conversion: Conversion
) -> list[dict[str, Any]]:
    """The mounts of `kind: job`: storage, inputs and outputs. path: of the runtime's spec."""
    made = storage_mounts(listed, conversion)
    for number, (uri, place) in enumerate(runtime.inputs.items()):
        field = f"{path}.inputs.{uri}"
        if is_placeholder(uri):
            conversion.refuse(field, f"{uri} was not filled in", "fill it in")
        made[field] = _input(uri, place, number)
    if runtime.output_uri is not None:
        place = runtime.output_dir or "/mnt/outputs"
        made[f"{path}.outputUri"] = _output(runtime.output_uri, place, path, conversion)
    conversion.origins |= {f"mounts[{n}]": Origin(field) for n, field in enumerate(made)}
    return [*made.values()]


def _input(uri: str, place: str, number: int) -> dict[str, Any]:
    """ADS: a relative place is below the folder in which the program starts."""
    if posixpath.isabs(place):
        return {"source": uri, "path": place, "read_only": True}
    path = "inputs" if number == 0 else f"inputs-{number}"
    return {"source": uri, "path": path, "link": place, "read_only": True}


def _output(uri: str, place: str, path: str, conversion: Conversion) -> dict[str, Any]:
    """ADS: a relative place is below the folder in which the program starts."""
    if is_placeholder(uri):
        conversion.refuse(f"{path}.outputUri", f"{uri} was not filled in", "fill it in")
    if "$" in uri:
        why = f"is used as it is written, without filling in variables: {uri}"
        conversion.notes.add("outputUri", why)
    if posixpath.isabs(place):
        return write_back(uri, place)
    if posixpath.normpath(place) in (".", ".."):
        text = f"{place} also holds the code, so outputs cannot be distinguished from it"
        conversion.refuse(f"{path}.outputDir", text, "name a folder for the program's outputs")
    return {**write_back(uri, "outputs"), "link": place}


def write_back(uri: str, place: str) -> dict[str, Any]:
    """A mount whose content is copied to a URL."""
    return {"source": uri, "path": place}
