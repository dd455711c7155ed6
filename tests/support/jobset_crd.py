"""JobSet's CustomResourceDefinition in the short form that Muster ships of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from muster.spec.formats.api_check import TABLE

#: What of a schema is kept as it is.
_KEPT = (
    *("type", "format", "enum", "required", "pattern"),
    *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength"),
)
_WHOSE = (
    "From the CustomResourceDefinition jobsets.jobset.x-k8s.io of kubernetes-sigs/jobset, "
    "Copyright The Kubernetes Authors, Apache-2.0; shortened. tests/support/jobset_crd.py makes it."
)


def schema(path: Path) -> dict[str, Any]:
    """The openAPI schema of a manifest, less its status."""
    data = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    made: dict[str, Any] = data["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    made["properties"].pop("status")
    return made


def derived(crd: dict[str, Any]) -> dict[str, Any]:
    """The table. Schemas that occur several times stand in `shared`, and are named by number."""
    shared: dict[str, int] = {}
    root = _short(crd, shared)
    return {"whose": _WHOSE, "root": root, "shared": [json.loads(text) for text in shared]}


def _short(said: dict[str, Any], shared: dict[str, int]) -> Any:
    made = {name: said[name] for name in _KEPT if name in said}
    if said.get("x-kubernetes-int-or-string"):
        made["type"] = "int-or-string"
    if said.get("x-kubernetes-list-type") in ("map", "set"):
        made["keys"] = said.get("x-kubernetes-list-map-keys", [])
    if "properties" in said:
        made["fields"] = {name: _short(x, shared) for name, x in said["properties"].items()}
    for name, inner in (("items", "items"), ("additionalProperties", "values")):
        if isinstance(said.get(name), dict):
            made[inner] = _short(said[name], shared)
    text = json.dumps(made, sort_keys=True)
    return shared.setdefault(text, len(shared)) if len(text) > 30 else made


if __name__ == "__main__":
    import sys

    table = derived(schema(Path(sys.argv[1])))
    TABLE.write_text(json.dumps(table, separators=(",", ":")) + "\n")
