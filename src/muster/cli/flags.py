"""Name parameters as the flags that set them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from muster.errors import InvalidInput


@contextmanager
def as_flags(*parameters: str) -> Iterator[None]:
    """Have problems with these parameters name the flag: `--local-port` for `local_port`."""
    try:
        yield
    except InvalidInput as error:
        renamed = (
            one._replace(path=f"--{one.path.replace('_', '-')}") if one.path in parameters else one
            for one in error.problems
        )
        raise type(error)(*renamed) from None
