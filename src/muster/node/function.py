"""Calls a function that was sent here, as a program: `python function.py FUNCTION`.

Its arguments are in the run's folder; what it returns, or raises, is left in the run's outputs, for
whoever asks for it. Needs cloudpickle in the Python that runs it.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]  # our own modules are none of the function's business

import contextlib
import importlib
import pickle
import traceback
from typing import Any, Callable, Dict, List, Tuple

RESULT = "result.pickle"
ARGUMENTS = "arguments.pickle"


class Unusable(Exception):  # noqa: N818
    """What was sent cannot be called here."""


def main(argv: List[str]) -> int:
    """argv: the file of the function. Returns the exit code."""
    kept = os.path.join(_output_folder(), RESULT)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(kept)  # of an earlier life
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
        return _failed(kept, error)
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
        importlib.import_module("cloudpickle")  # what it has made needs it
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
    path = os.path.join(os.path.dirname(os.environ.get("MUSTER_OUTPUTS", "outputs")), ARGUMENTS)
    if not os.path.exists(path):  # the Job was run by its name
        return (), {}
    with open(path, "rb") as file:
        args, kwargs = pickle.load(file)
    return args, kwargs


def _failed(kept: str, error: BaseException) -> int:
    # the first frame is ours
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    said: Dict[str, Any] = {"type": type(error).__name__, "text": str(error), "traceback": text}
    try:
        said["error"] = _dumps(error)
        pickle.loads(said["error"])  # some exceptions can be packed and not unpacked
    except Exception:  # noqa: BLE001
        said["error"] = None
    _save(kept, said)
    sys.stderr.write(text)
    return 1


def _dumps(value: Any) -> bytes:
    data: bytes = importlib.import_module("cloudpickle").dumps(value)
    return data


def _save(path: str, said: Dict[str, Any]) -> None:
    said["restart"] = os.environ.get("MUSTER_RESTART", "0")
    descriptor = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        pickle.dump(said, file)
    os.replace(path + ".part", path)


def _output_folder() -> str:
    """Where this process may leave things for the owner of the run. As in `node.notebook`, which
    cannot be imported here: a program has nothing of Muster on its path."""
    env = os.environ
    ranks = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "NODE_RANK")
    rank = next((env[name] for name in ranks if env.get(name)), "0")
    folder = os.path.join(env.get("MUSTER_OUTPUTS", "outputs"), "rank-%s" % rank)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
