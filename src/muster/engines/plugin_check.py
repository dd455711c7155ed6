"""Check that an object of a plug-in is an engine, before anything is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

from muster.engines.base import Capabilities, Engine

#: Methods that are only called if the engine has the capability.
_OF_CAPABILITIES = {
    "run_in_node": "exec",
    "forward": "forward",
    "stacks": "stacks",
    "counters": "counters",
    "read_workload": "workloads",
}
#: Missing methods that are named.
_SHOWN = 4
_METHODS = [
    name for name in vars(Engine) if not name.startswith("_") and callable(vars(Engine)[name])
]


def faults(made: object, name: str) -> list[str]:
    """What keeps an object from being the engine with this name; empty if it is one."""
    return list(_faults(made, name))


def _faults(made: object, name: str) -> Iterator[str]:
    own = getattr(made, "name", None)
    if own != name:
        yield f"its `name` is {own!r}, not {name!r}" if own is not None else "it has no `name`"
    can = getattr(made, "capabilities", None)
    if not isinstance(can, Capabilities):
        yield "its `capabilities` are no `muster.engines.base.Capabilities`"
    missing = [
        method
        for method in _METHODS
        if not callable(getattr(made, method, None))
        and getattr(can, _OF_CAPABILITIES.get(method, ""), True)
    ]
    if missing:
        named = ", ".join(f"{method}()" for method in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        yield f"it lacks {named}{more}"
