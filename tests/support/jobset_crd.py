"""Write `schema.json` from JobSet's published CustomResourceDefinition:

PYTHONPATH=tests python -m support.jobset_crd jobset.x-k8s.io_jobsets.yaml VERSION

With a third argument, that is the file which is written: schemas of released versions, for tests,
are in tests/engines/kubernetes/crds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from muster.spec.formats.jobset.schema import SCHEMA

#: Keywords that are kept as they are.
_KEPT = (
    *("type", "format", "enum", "required", "pattern", "x-kubernetes-int-or-string"),
    *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
)
_SOURCE = (
    "CustomResourceDefinition jobsets.jobset.x-k8s.io (v1alpha2) of kubernetes-sigs/jobset, "
    "Copyright The Kubernetes Authors, Apache-2.0. Without descriptions, defaults, rules and "
    "status; tests/support/jobset_crd.py writes this file."
)


def schema(path: Path) -> dict[str, Any]:
    """The OpenAPI schema of a manifest without its status."""
    data = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    made: dict[str, Any] = data["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    made["properties"].pop("status")
    return made


def trimmed(crd: dict[str, Any], version: str) -> dict[str, Any]:
    """The file's content. Schemas of more than a few keywords are definitions, each stored once."""
    definitions: dict[str, int] = {}
    root = _trimmed(crd, definitions)
    return {
        "source": _SOURCE,
        "version": version,
        "schema": root,
        "definitions": [json.loads(text) for text in definitions],
    }


def _trimmed(schema: dict[str, Any], definitions: dict[str, int]) -> Any:
    made = {name: schema[name] for name in _KEPT if name in schema}
    if schema.get("x-kubernetes-list-type") == "atomic":
        del made["x-kubernetes-list-type"]
    if "properties" in schema:
        inner = schema["properties"]
        made["properties"] = {name: _trimmed(inner[name], definitions) for name in inner}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            made[name] = _trimmed(schema[name], definitions)
    text = json.dumps(made, sort_keys=True)
    if len(text) <= 40:
        return made
    return {"$ref": f"#/definitions/{definitions.setdefault(text, len(definitions))}"}


if __name__ == "__main__":
    import sys

    content = trimmed(schema(Path(sys.argv[1])), sys.argv[2])
    target = Path(sys.argv[3]) if len(sys.argv) > 3 else SCHEMA
    target.write_text(json.dumps(content, separators=(",", ":")) + "\n")
