from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from muster.spec.decode import names
from muster.spec.schema import _MODELS, field_texts, json_schema, reference_markdown

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("model", _MODELS[:-2])
def test_every_field_is_described(model: Any) -> None:
    summary, texts = field_texts(model)
    assert summary
    assert list(texts) == names(model)


def test_pages_are_current() -> None:
    assert (ROOT / "docs/reference/spec.md").read_text() == reference_markdown(), "run `make docs`"
    stored = json.loads((ROOT / "docs/reference/spec.schema.json").read_text())
    assert stored == json.loads(json.dumps(json_schema())), "run `make docs`"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/job.yaml")), ids=str)
def test_examples_obey_the_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json_schema())


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        ({"command": "x y", "max_runtime": "5m", "env": {"A": 1}}, True),
        ({"command": ["x", 1], "max_runtime": 300, "resources": {"memory": "4GiB"}}, True),
        ({"failure": {"rules": [{"action": "fail", "exit_codes": "1-9"}]}}, True),
        ({"failure": {"rules": [{"action": "fail", "exit_codes": [1, "3-5"]}]}}, True),
        ({"failure": {"rules": [{"action": "fail", "signals": ["KILL", 9]}]}}, True),
        ({"failure": {"backoff": {"initial": "5s", "jitter": 0.5}}}, True),
        ({"checkpoint": {"signal": 10, "grace": "1m"}, "suspend": True}, True),
        ({"failure": {"rules": [{"exit_codes": 1}]}}, False),
        ({"failure": {"max_restart": 1}}, False),
        ({"node_groups": [{"name": "a", "depends_on": ["b"]}]}, False),
        ({"comand": "x"}, False),
        ({"nodes": "two"}, False),
        ({"node_groups": [{"nodes": 1}]}, False),
    ],
)
def test_the_schema_accepts_the_same_specs_as_the_reader(spec: dict[str, Any], valid: bool) -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    assert validator.is_valid(spec) is valid
