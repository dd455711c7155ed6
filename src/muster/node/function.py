"""Calls a pickled function, as a program: `python function.py FUNCTION`.

Reads the arguments from the run's folder and writes the return value, or the exception, there,
for each process. Needs cloudpickle in the Python that runs it.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # the function must not see our modules

import contextlib
import importlib
import pickle
import traceback
from typing import Any, Callable, Dict, List, Tuple

RESULT = "result.pickle"
ARGUMENTS = "arguments.pickle"


class Unusable(Exception):  # noqa: N818
    """The function cannot be called by this Python."""


def main(argv: List[str]) -> int:
    """argv: the file with the function. Returns the exit code."""
    kept = os.path.join(_result_folder(), RESULT)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(kept)  # of an earlier incarnation
    try:
        function, args, kwargs = _load(argv[0])
    except Unusable as error:
        sys.stderr.write("%s\n" % error)
        return 1
    try:
        value = function(*args, **kwargs)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
        value = None
    except BaseException as error:  # noqa: BLE001
        return _save_failure(kept, error)
    try:
        _save(kept, {"value": _dumps(value)})
    except Exception as error:  # noqa: BLE001
        kind = type(value).__name__
        text = "the function returned a %s, which cannot be sent back: %s" % (kind, error)
        _save(kept, {"error": None, "type": "TypeError", "text": text, "traceback": text})
        sys.stderr.write("%s\n" % text)
        return 1
    return 0


def _load(path: str) -> Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]:
    with open(path, "rb") as file:
        sent = pickle.load(file)
    here = list(sys.version_info[:2])
    if sent["python"] != here:
        there, ours = (".".join(map(str, version)) for version in (sent["python"], here))
        text = "the function %s is of Python %s and cannot be called by %s, which is Python %s"
        raise Unusable(text % (sent["name"], there, sys.executable, ours))
    try:
        importlib.import_module("cloudpickle")  # needed to unpickle what cloudpickle made
    except ImportError:
        text = "a function needs cloudpickle, which %s does not have: pip install cloudpickle, "
        raise Unusable((text + "or name it in the requirements") % sys.executable) from None
    try:
        function = pickle.loads(sent["function"])
        args, kwargs = _arguments()
    except Exception as error:
        raise Unusable(
            "%s\nthe function %s, or an argument of it, cannot be unpacked here"
            % (traceback.format_exc().rstrip(), sent["name"])
        ) from error
    return function, args, kwargs


def _arguments() -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    path = os.path.join(_run_folder(), ARGUMENTS)
    if not os.path.exists(path):  # the Job was run without a call, by its name
        return (), {}
    with open(path, "rb") as file:
        args, kwargs = pickle.load(file)
    return args, kwargs


def _save_failure(kept: str, error: BaseException) -> int:
    # without the first frame, which is this module's
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    result: Dict[str, Any] = {"type": type(error).__name__, "text": str(error), "traceback": text}
    try:
        result["error"] = _dumps(error)
        pickle.loads(result["error"])  # some exceptions can be pickled but not unpickled
    except Exception:  # noqa: BLE001
        result["error"] = None
    _save(kept, result)
    sys.stderr.write(text)
    return 1


def _dumps(value: Any) -> bytes:
    data: bytes = importlib.import_module("cloudpickle").dumps(value)
    return data


def _save(path: str, result: Dict[str, Any]) -> None:
    result["restart"] = os.environ.get("MUSTER_RESTART", "0")
    descriptor = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(result, file)
    os.replace(path + ".part", path)


def _run_folder() -> str:
    # a supervisor of the previous version sets only MUSTER_OUTPUTS, to what the nodes share
    outputs = os.environ.get("MUSTER_RUN_OUTPUTS") or os.environ.get("MUSTER_OUTPUTS", "outputs")
    return os.path.dirname(outputs)


def _result_folder() -> str:
    """The folder for the result of this process, by its rank in the framework."""
    env = os.environ
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "NODE_RANK")
    rank = next((env[name] for name in ranks if env.get(name)), "0")
    folder = os.path.join(_run_folder(), "results", "rank-%s" % rank)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
