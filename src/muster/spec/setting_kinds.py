"""What kind of setting a field of the spec is, declared in the field's annotation:

    class JobSpec(Struct):
        max_runtime: RunWide[Runtime] = MAX_RUNTIME

`python -m muster.spec.generate` writes `spec.override_models` from these annotations: the fields
that a run may change, and a tuple of names for each kind. Code that treats all settings of one kind
alike (merging, explaining, flags, plans, other formats) iterates over these tuples.

A field without a kind belongs to the Job; a run cannot change it.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

T = TypeVar("T")

#: One value for the whole run. A run may override it. Copied into the field of the same name of
#: `RunPlan` and of `Policy`, if there is one.
RunWide = Annotated[T, "run-wide"]
#: A default for every group. Overrides of a group or run take precedence, then the group's value.
#: The settings of a group, of this kind and the next, are copied into the fields of the same names
#: of `GroupPlan`, `GroupPolicy` and `LaunchMessage`, if there are any.
Inherited = Annotated[T, "inherited"]
#: A setting of one group only. A run may override it per group.
GroupOnly = Annotated[T, "group-only"]
#: With `nodes: N`, a setting of the only group. A run may override it without naming the group.
OnlyGroup = Annotated[T, "only-group"]
#: A mapping. Overrides are merged key by key.
Merged = Annotated[T, "merged"]
#: Where the code is and what it needs. Explained where given.
Code = Annotated[T, "code"]

#: Besides one of the above: `muster explain` lists it even if it is not set.
AlwaysShown = Annotated[T, "always-shown"]
#: Besides one of the above: `muster run` has an option with its name (`--max-runtime`). Every
#: setting that a run may change can be given with `--set NAME=VALUE`.
Flag = Annotated[T, "flag"]
