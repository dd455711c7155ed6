"""What docs/reference/jobset.md says of engines is what they do with manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from muster.engines.capabilities import image_problems, spec_problems
from muster.engines.registry import engine_named
from muster.spec.override_models import RunOverrides
from muster.spec.resolve import resolve
from muster.storage.home import Home
from support.jobset import jobset, plan_of, read, replicated

PAGE = Path(__file__).parents[4] / "docs/reference/jobset.md"
#: Row of the table -> what a replicated Job has.
ROWS: dict[str, dict[str, Any]] = {
    "`image`": {},
    "no `command`: the image's own": {"container": {"command": []}},
    "`initContainers`, several `containers`": {
        "pod": {"initContainers": [{"name": "i", "image": "busybox"}]}
    },
    "`securityContext`": {"container": {"securityContext": {"runAsUser": 5}}},
    "`cpu`, `memory` in `resources.limits`": {
        "container": {"resources": {"limits": {"cpu": 1, "memory": "64Mi"}}}
    },
}
ENGINES = {"local": 0, "container": 2, "slurm": 3}


def rows() -> dict[str, list[str]]:
    """First cell -> the others."""
    text = PAGE.read_text().partition("\n## Engines\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {first: rest for first, *rest in lines}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_engines(row: str, engine: str, own_home: Path) -> None:
    manifest = jobset([replicated("w", **ROWS[row])])
    made = engine_named(engine, Home(own_home))
    spec = resolve(read(manifest).spec, RunOverrides()).spec
    problems = [*spec_problems(made, spec), *image_problems(made, spec, plan_of(manifest))]
    if problems:
        found = "refused"
    else:
        words = {"`image`": "image busybox", "`securityContext`": "container is"}.get(row)
        is_noted = any(words in note for note in made.notes(plan_of(manifest))) if words else False
        found = "note" if is_noted else "yes"
    assert rows()[row][ENGINES[engine]] == found
