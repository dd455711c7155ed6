"""`muster disk`."""

from __future__ import annotations

import click

from muster.cli.arguments import json_option
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo
from muster.spec.quantities import format_size

#: Parts of runs -> what they are called.
_PARTS = {"nodes": "working directories", "other": "other files"}


@click.command()
@json_option()
def disk(as_json: bool) -> None:
    """Show what Muster keeps on disk, and its size.

    PRUNE FREES is what `muster prune` would free. Disk blocks shared between versions of code, or
    between nodes, are counted once.

    \b
    muster disk
    """
    from msgspec import to_builtins

    from muster.client.client import Client

    client = Client()
    items = client.disk()
    if as_json:
        print_json(to_builtins(items))
        return
    rows = []
    for item in items:
        freed = format_size(item.prunable) if item.prunable else "-"
        rows.append((item.kind, str(item.count), format_size(item.size), freed))
        for part, size in item.parts.items():
            if size:
                rows.append((f"  {_PARTS.get(part, part)}", "", format_size(size), ""))
    total = format_size(sum(item.size for item in items))
    prunable = sum(item.prunable for item in items)
    rows.append(("total", "", total, format_size(prunable) if prunable else "-"))
    print_table(("WHAT", "COUNT", "SIZE", "PRUNE FREES"), rows)
    echo(f"in {client.api.location()}", err=True)
