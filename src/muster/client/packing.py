"""Pickle functions and their arguments for nodes that do not have the user's modules."""

from __future__ import annotations

import io
import os
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.quantities import format_size

#: Bytes; larger values belong in a mount.
MAX_SIZE = 512 << 20
_INSTALLED = {"site-packages", "dist-packages"}


def pack_function(function: Callable[..., Any], name: str) -> bytes:
    """The function, with the modules next to it that are not installed. Raises InvalidInput."""
    with _by_value(function):
        code = _dumps(function, "function", f"the function {name}")
    sent = {"python": list(sys.version_info[:2]), "name": name, "function": code}
    return pickle.dumps(sent)


def pack_arguments(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bytes:
    """The arguments. Raises InvalidInput, which names the argument that cannot be pickled."""
    with _by_value(function):
        try:
            return _dumps((args, dict(kwargs)), "arguments", f"the arguments of {name}")
        except InvalidInput:
            for place, value in [*enumerate(args), *kwargs.items()]:
                what = f"argument {place + 1}" if isinstance(place, int) else f"argument {place}"
                _dumps(value, "arguments", f"{what} of {name}")
            raise


class _TooLarge(Exception):  # noqa: N818
    pass


class _Limited(io.BytesIO):
    """Raises _TooLarge at the limit, before memory is full."""

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > MAX_SIZE:
            raise _TooLarge
        return super().write(data)


def _dumps(value: Any, path: str, what: str) -> bytes:
    cloudpickle = cloudpickle_module()
    made = _Limited()
    try:
        cloudpickle.dump(value, made)
    except _TooLarge:
        text = f"{what} takes more than {format_size(MAX_SIZE)}"
        hint = "put large values into a mount, and pass their path"
        raise InvalidInput(Problem(path, text, hint)) from None
    except Exception as error:
        text = f"{what} cannot be sent: {error}"
        hint = "create it inside the function instead"
        raise InvalidInput(Problem(path, text, hint)) from error
    return made.getvalue()


def cloudpickle_module() -> Any:
    """Raises InvalidInput if cloudpickle is not installed."""
    from importlib import import_module

    try:
        return import_module("cloudpickle")
    except ImportError:
        hint = "pip install 'muster-jobs[function]'"
        raise InvalidInput(Problem("", "functions need cloudpickle", hint)) from None


@contextmanager
def _by_value(function: Callable[..., Any]) -> Iterator[None]:
    """Pickle the modules next to the function with it: nodes could not import them."""
    cloudpickle = cloudpickle_module()
    with ExitStack() as stack:
        for module in _own_modules(function):
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        yield


def _own_modules(function: Callable[..., Any]) -> list[ModuleType]:
    """The imported modules below the function's folder that are not installed."""
    root = _root(sys.modules.get(function.__module__))
    library = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or name.partition(".")[0] == "muster" or not file:
            continue
        path = Path(os.path.realpath(file))
        installed = _INSTALLED & {*path.parts} or any(path.is_relative_to(p) for p in library)
        if path.is_relative_to(root) and not installed:
            found.append(module)
    return found


def _root(module: ModuleType | None) -> Path:
    """The folder that a module is imported from; the working directory for a notebook."""
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return Path.cwd().resolve()
    levels = module.__name__.count(".") + (1 if hasattr(module, "__path__") else 0)
    path = Path(os.path.realpath(file)).parent
    return path if module.__name__ == "__main__" or not levels else path.parents[levels - 1]
