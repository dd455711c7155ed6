"""`muster schema`."""

from __future__ import annotations

import click

from muster.cli.output import print_json


@click.command()
def schema() -> None:
    """The JSON Schema of the spec.

    \b
    In an editor with the YAML language server, put this on a spec's first line:
    # yaml-language-server: $schema=muster-schema.json
    """
    from muster.spec.schema import json_schema

    print_json(json_schema())
