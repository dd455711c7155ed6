"""Values and types that are sent as JSON, and types that threads decode with msgspec.

When msgspec decodes a Struct for the first time, it compiles what it knows of its fields. If two
threads do that for the same Struct at the same time, the process ends with a segmentation fault
(msgspec 0.22). So each type is compiled here first, by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

import msgspec

_lock = Lock()
_compiled: set[Any] = set()


def compile_type(kind: Any) -> None:
    """Compile a type, with those of its fields, unless that was done."""
    if kind in _compiled:
        return
    with _lock:
        msgspec.json.Decoder(kind)
        _compiled.add(kind)


def decode_json(data: bytes | bytearray | str, kind: Any) -> Any:
    """JSON as a value of a type. Raises `msgspec.DecodeError`, or UnicodeDecodeError unless it is
    UTF-8."""
    compile_type(kind)
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deep") from None


def is_deeper(value: Any, most: int) -> bool:
    """Whether more objects and arrays are in each other than `most`."""
    level = [value]
    for _ in range(most):
        inside = [one for one in level if isinstance(one, (dict, list))]
        if not inside:
            return False
        level = [each for one in inside for each in (one.values() if type(one) is dict else one)]
    return any(isinstance(one, (dict, list)) for one in level)


def encode_json(value: Any) -> bytes:
    """A value as JSON. Mappings are objects, all other collections arrays."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else list(value)
