"""Read volumes of the values of ConfigMaps and Secrets, and of fields of the pod, as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from muster.errors import Problem
from muster.spec.formats.jobset.config_objects import ConfigObjects, Kind, no_key
from muster.spec.formats.jobset.downward_api import Pod, resource_field
from muster.spec.formats.jobset.kubernetes import Container, DownwardFile, KeyToPath, Volume
from muster.spec.models import MountFile
from muster.spec.values import is_file_path
from muster.spec.wording import Refused, short

#: Fields of pods that are mappings.
_MAPPINGS = {"metadata.labels": "labels", "metadata.annotations": "annotations"}

Files = Mapping[str, MountFile]


class _Source(Struct, frozen=True):
    """Where files of a volume come from. path: in the manifest."""

    path: str
    kind: Kind | None = None  # None: fields of the pod
    name: str = ""
    keys: Sequence[KeyToPath] = ()
    fields: Sequence[DownwardFile] = ()
    optional: bool = False


def volume_files(
    volume: Volume, path: str, pod: Pod, objects: ConfigObjects, problems: list[Problem]
) -> Files | None:
    """The files of a volume by their paths in it; None if it is another kind of volume. Adds
    problems. path: the volume's, in the manifest."""
    made: dict[str, MountFile] = {}
    found = _sources(volume, path)
    if found is None:
        return None
    default, sources = found
    if not 0 <= default <= 0o777:
        text = f"{default} is not a mode: it is {oct(default)}"
        problems.append(Problem(path, text, "write it in octal, such as 0400, or as 256"))
        default = 0o644
    for source in sources:
        try:
            made |= _files(source, default, pod, objects)
        except Refused as error:
            problems.append(Problem(source.path, error.message, error.hint))
    return made


def _sources(volume: Volume, path: str) -> tuple[int, list[_Source]] | None:
    """The default mode of files, and the sources."""
    if (one := volume.config_map) is not None:
        place = f"{path}.configMap"
        kept = _Source(place, "ConfigMap", one.name, one.items, optional=one.optional)
        return one.default_mode, [kept]
    if (secret := volume.secret) is not None:
        place = f"{path}.secret"
        kept = _Source(place, "Secret", secret.secret_name, secret.items, optional=secret.optional)
        return secret.default_mode, [kept]
    if (pod := volume.downward_api) is not None:
        return pod.default_mode, [_Source(f"{path}.downwardAPI", fields=pod.items)]
    if (projected := volume.projected) is None:
        return None
    made = []
    for number, each in enumerate(projected.sources):
        place = f"{path}.projected.sources[{number}]"
        for kind, ref in (("ConfigMap", each.config_map), ("Secret", each.secret)):
            if ref is not None:
                known: Kind = "Secret" if kind == "Secret" else "ConfigMap"
                made.append(_Source(place, known, ref.name, ref.items, optional=ref.optional))
        if each.downward_api is not None:
            made.append(_Source(place, fields=each.downward_api.items))
    return projected.default_mode, made


def _files(source: _Source, default: int, pod: Pod, objects: ConfigObjects) -> Files:
    """Raises Refused."""
    if source.kind is None:
        return dict(_of_pod(source.fields, default, pod))
    namespace = pod.jobset.metadata.namespace
    found = objects.find(source.kind, source.name, namespace, optional=source.optional)
    if found is None:
        return {}
    made = {}
    for item in source.keys or [KeyToPath(key=key, path=key) for key in found.keys]:
        if item.key not in found.keys:
            if source.optional:
                continue
            raise no_key(found, item.key)
        made[_path(item.path)] = found.file(item.key, _mode(item.mode, default))
    return made


def _of_pod(
    fields: Sequence[DownwardFile], default: int, pod: Pod
) -> Iterator[tuple[str, MountFile]]:
    spec = pod.rj.template.spec.template.spec
    containers: Mapping[str, Container] = {one.name: one for one in spec.containers}
    for each in fields:
        if each.field_ref is not None:
            field = each.field_ref.field_path
            value = pod.all_of(_MAPPINGS[field]) if field in _MAPPINGS else pod.field(field)
        elif each.resource_field_ref is not None:
            value = resource_field(each.resource_field_ref, containers, "")
        else:
            raise Refused(f"{short(each.path)} has no source", "give it a fieldRef")
        yield _path(each.path), MountFile(text=value.template, mode=_mode(each.mode, default))


def _path(path: str) -> str:
    """Raises Refused."""
    if not is_file_path(path):
        raise Refused(f"{short(path)} is not a path in the volume", "write it without / and ..")
    return path


def _mode(mode: int | None, default: int) -> str:
    """In octal digits. Raises Refused."""
    chosen = default if mode is None else mode
    if not 0 <= chosen <= 0o777:
        raise Refused(f"{chosen} is not a mode", "write it in octal, such as 0400, or as 256")
    return f"{chosen:04o}"
