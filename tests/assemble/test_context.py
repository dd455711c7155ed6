"""What is asked at every look."""

from __future__ import annotations

from muster.assemble.context import first_told
from muster.assemble.running import Told
from muster.errors import EngineError


def fails() -> Told | None:
    raise EngineError("the store is away")


def test_one_that_fails_keeps_no_other_from_being_asked() -> None:
    told = Told("enough", failed=False)
    assert first_told((fails, lambda: None, lambda: told, lambda: Told("later", True))) == told
    assert first_told((fails, lambda: None)) is None
