"""What another system cannot say of a job."""

from __future__ import annotations

from typing import NamedTuple


class Loss(NamedTuple):
    """path: of the spec. why: what becomes of it there."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"
