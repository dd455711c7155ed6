"""The example in docs/concepts.md of what happens when something fails."""

from __future__ import annotations

import re
from pathlib import Path

from muster.spec.override_models import RunOverrides
from muster.spec.reader import read_spec
from muster.spec.resolve import resolve

PAGE = Path(__file__).parent.parent.parent / "docs" / "concepts.md"


def test_the_example_is_a_job(tmp_path: Path) -> None:
    _, _, section = PAGE.read_text().partition("## What happens when something fails\n")
    (example,) = re.findall(r"```yaml\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    path = tmp_path / "job.yaml"
    path.write_text(example)
    spec = resolve(read_spec(path), RunOverrides()).spec
    assert [rule.name for rule in spec.failure.rules] == ["bad-arguments", "lost-node", "bad-gpu"]
    assert spec.failure.rules[0].exit_codes == (2, *range(64, 79))
    assert spec.failure.rules[2].messages == (r"Xid \d+", "ECC")
    assert spec.checkpoint is not None
