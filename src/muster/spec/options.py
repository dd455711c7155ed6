"""`framework_options` as flags: `--option NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.spec.wording import short


def options_from_flags(flags: Sequence[str]) -> dict[str, Any]:
    """Name -> value, the values in YAML. Raises InvalidInput."""
    if not flags:
        return {}  # without the YAML library, which takes longer to load than all else
    from muster.spec.yaml import load

    options: dict[str, Any] = {}
    problems = []
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not name.isidentifier():
            problems.append(
                Problem("--option", f"{short(flag)} is not NAME=VALUE", "as in threads=2")
            )
            continue
        try:
            options[name] = load(text, "--option", name)[0] if text else ""
        except InvalidInput as error:
            problems += [Problem(f"--option {flag}", p.message, p.hint) for p in error.problems]
    if problems:
        raise InvalidInput(*problems)
    return options
