"""The format in which a command prints data: text, a table with all columns, JSON or YAML.

The format is kept with click's context, so that only the functions that print need it.
"""

from __future__ import annotations

from typing import Literal

import click

Format = Literal["text", "wide", "json", "yaml"]
#: The formats that `-o` accepts.
NAMES = ("json", "yaml", "wide")
_KEY = f"{__name__}.format"


def output_format() -> Format:
    """The format that was chosen for the current command."""
    ctx = click.get_current_context(silent=True)
    found: Format = "text" if ctx is None else ctx.meta.get(_KEY, "text")
    return found


def choose(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    """The callback of `--output`. Raises BadParameter for a second, other format."""
    if name is None:
        return
    before = ctx.meta.setdefault(_KEY, name)
    if before != name:
        raise click.BadParameter(f"{before} was chosen already", ctx, param)


def choose_json(ctx: click.Context, param: click.Parameter, chosen: bool) -> bool:
    """The callback of `--json`: whether the command prints data, as JSON or as YAML."""
    if chosen:
        choose(ctx, param, "json")
    return ctx.meta.get(_KEY) in ("json", "yaml")


def split_formats(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """The callback of an option with `-o` as its short form too: values without the formats."""
    for value in values:
        if value in NAMES:
            choose(ctx, param, value)
    return tuple(value for value in values if value not in NAMES)
