"""Which engine runs a run. Layers above ask for it here, and know only its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.engines.base import Engine


def default_engine() -> Engine:
    """The engine of runs whose job names none; so far, all of them."""
    from muster.engines.local.engine import LocalEngine

    return LocalEngine()
