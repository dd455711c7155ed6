"""Every field of a manifest by what becomes of it: read, noted, or refused by name.

`sieve` takes out of plain data what the models do not read. What means nothing where there is no
cluster becomes a note; what would change how the program runs is refused, with the way out. A
field that is in neither table nor model is refused too: nothing is lost in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args, get_origin

import msgspec
from msgspec.structs import fields

from muster.errors import Problem
from muster.spec.decode import unwrap
from muster.spec.formats import jobset_model as js
from muster.spec.formats import kubernetes as k8s
from muster.spec.formats.notes import Notes
from muster.spec.formats.tables import JOBSET, Model, Tables
from muster.spec.wording import close_to


class Sieve:
    """Takes out what the models do not read, noting why."""

    def __init__(self, notes: Notes, problems: list[Problem], tables: Tables = JOBSET) -> None:
        self._tables = tables
        self._notes = notes
        self._problems = problems

    def clean(self, model: Model, data: Any, path: str = "", group: str = "") -> Any:
        """`data` with nothing in it but what `model` reads. What has the wrong shape is left to
        `decode`."""
        if not isinstance(data, Mapping):
            return data
        known = {info.encode_name: info.type for info in fields(model)}
        made = {}
        for key, value in data.items():
            name, where = str(key), f"{path}.{key}" if path else str(key)
            if name in known:
                made[name] = self._value(known[name], value, where, group)
            elif value is not None:
                self._other(model, name, value, where, group)
        return made

    def _value(self, kind: Any, value: Any, path: str, group: str) -> Any:
        plain, _, _ = unwrap(kind)
        if get_origin(plain) is tuple and isinstance(value, list):
            item = get_args(plain)[0]
            return [
                self._value(item, inner, f"{path}[{i}]", group or _group(item, inner))
                for i, inner in enumerate(value)
            ]
        if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
            return self.clean(plain, value, path, group)
        if plain is int and isinstance(value, float) and value.is_integer():
            return int(value)  # as the API server does
        return value

    def _other(self, model: Model, name: str, value: Any, path: str, group: str) -> None:
        if name in self._tables.silent.get(model, ()) or _empty(value):
            return
        if name in (noted := self._tables.noted.get(model, {})):
            self._notes.add(name, noted[name], group)
        elif name in (refused := self._tables.refused.get(model, {})):
            message, hint = refused[name]
            self._problems.append(Problem(path, message, hint))
        else:
            hint, meant = self._close(model, name)
            whole = f"{path.removesuffix(name)}{meant}" if meant else ""
            problem = Problem(path, "Muster does not read this field", hint, meant=whole)
            self._problems.append(problem)

    def _close(self, model: Model, name: str) -> tuple[str, str]:
        """A hint, and the field that was probably meant, if there is one."""
        known = [info.encode_name for info in fields(model)]
        known += [*self._tables.noted.get(model, ()), *self._tables.refused.get(model, ())]
        close = close_to(name, known, 1, 0.75)
        if close:
            return f'did you mean "{close[0]}"?', close[0]
        for other in _NEIGHBOURS.get(model, ()):
            if name in [info.encode_name for info in fields(other)]:
                return f"it belongs to {_WORDS[other]}: check the indentation", ""
        return "remove it if the program can do without", ""


def _group(item: Any, data: Any) -> str:
    named = item is js.ReplicatedJob and isinstance(data, Mapping)
    return str(data.get("name", "")) if named else ""


def _empty(value: Any) -> bool:
    """Empty lists and mappings say as much as a field that is not there."""
    return isinstance(value, (list, Mapping)) and not value


#: Where a field may have been meant to stand.
_NEIGHBOURS: Mapping[Model, tuple[Model, ...]] = {
    js.JobSetSpec: (js.ReplicatedJob, k8s.Job),
    js.ReplicatedJob: (k8s.Job, js.JobSetSpec),
    k8s.JobTemplate: (k8s.Job,),
    k8s.Job: (k8s.PodSpec, js.ReplicatedJob, js.JobSetSpec),
    k8s.PodTemplate: (k8s.PodSpec, k8s.Job),
    k8s.PodSpec: (k8s.Container, k8s.Job),
    k8s.Container: (k8s.PodSpec, k8s.Job),
}
_WORDS: Mapping[Model, str] = {
    js.JobSetSpec: "the JobSet's spec",
    js.ReplicatedJob: "the replicated Job",
    k8s.Job: "the Job's spec (template.spec)",
    k8s.PodSpec: "the pod's spec (template.spec.template.spec)",
    k8s.Container: "a container",
}
