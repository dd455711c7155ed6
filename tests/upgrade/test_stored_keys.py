"""The JSON columns of the store keep their keys when a field is renamed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import fields

from muster.control.persist import Intent
from muster.node.launch_message import Probe
from muster.plan.model import RunPlan
from muster.store.run_columns import Lifecycle

#: Every key that the version before may have written, one a line, as `keys_of` names it.
STORED = Path(__file__).with_name("stored_keys.txt")


def structs_in(kind: Any) -> Iterator[type[Struct]]:
    """The struct types in a type such as `dict[str, GroupPlan] | None`."""
    if inspect.isclass(kind) and issubclass(kind, Struct):
        yield kind
    for argument in get_args(kind):
        yield from structs_in(argument)


def keys_of(kind: type[Struct], place: str) -> Iterator[str]:
    """The keys of a struct as it is stored, and of the structs in it: `plan.groups.command`."""
    for one in fields(kind):
        key = f"{place}.{one.encode_name}"
        yield key
        for inner in structs_in(one.type):
            yield from keys_of(inner, key)


def test_keys_of_the_version_before_are_still_read() -> None:
    read = {
        *keys_of(Lifecycle, "lifecycle"),
        *keys_of(Intent, "intent"),
        *keys_of(RunPlan, "plan"),
        *(f"plan.groups.probe.{name}" for name in Probe._fields),
    }
    stored = set(STORED.read_text().splitlines())
    assert len(stored) > 100
    assert sorted(stored - read) == []
