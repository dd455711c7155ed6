"""Write plain data as readable YAML: keys in their order, scripts as blocks."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """Indents lists and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        return super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(data: Any, *, ascii_only: bool = False) -> str:
    """The YAML text. `spec.yaml` reads it as the same data. ascii_only: escape all other
    characters."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=not ascii_only, width=100)
