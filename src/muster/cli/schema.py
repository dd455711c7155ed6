"""`muster schema`."""

from __future__ import annotations

import click

from muster.cli.output import print_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of the spec, for editors.

    \b
    With the YAML language server, make this a spec's first line:
    # yaml-language-server: $schema=muster-schema.json

    \b
    muster schema > muster-schema.json
    """
    from muster.spec.schema import json_schema

    print_json(json_schema())
