"""Values of settings as text."""

from __future__ import annotations

from typing import Any

import pytest

from muster.describe.settings import value_text


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("max_runtime", 90, "1m30s"),
        ("env.A", "b c", "b c"),
        ("node_groups[a].args", ["--steps", "a b"], "--steps 'a b'"),
        (
            "node_groups[a].resources",
            {"cpus": 2, "memory": 1 << 30, "gpus": 0},
            '{"cpus": 2, "memory": "1GiB"}',
        ),
        (
            "node_groups[a].mounts",
            [{"source": "volume:a", "files": {}, "path": None, "read_only": False}],
            '[{"source": "volume:a", "read_only": false}]',
        ),
        ("failure.rules", None, "-"),
    ],
)
def test_a_value_is_written_as_in_a_spec(path: str, value: Any, text: str) -> None:
    assert value_text(path, value) == text
