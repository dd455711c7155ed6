"""What the engines can do on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from muster.engines.findings import Finding
from muster.engines.installed import InstalledEngine, installed_engines
from muster.engines.registry import LOCAL


def examine() -> list[Finding]:
    """What each installed engine finds, the local one first. Names in findings of others start with
    the engine's. Leaves nothing behind."""
    return [finding for one in installed_engines() for finding in _findings(one)]


def _findings(one: InstalledEngine) -> Iterator[Finding]:
    if one.engine is None or one.unusable:
        yield Finding(f"engine {one.name}", False, f"{one.origin}: {one.unusable}")
        return
    for finding in one.engine.findings():
        yield finding if one.name == LOCAL else replace(finding, name=f"{one.name}: {finding.name}")
