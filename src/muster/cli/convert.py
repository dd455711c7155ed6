"""`muster convert`."""

from __future__ import annotations

from pathlib import Path

import click

from muster.cli import completion_values as values
from muster.cli.formats import NAMES
from muster.cli.terminal import echo, echo_notes
from muster.errors import InvalidInput, Problem


@click.command()
@click.argument("file", shell_complete=values.files)
@click.option(
    "--to",
    type=click.Choice(["jobset", "muster"]),
    help="Output format. Default: jobset for a spec, else muster.",
)
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    shell_complete=values.files,
    help="Write to FILE instead of stdout.",
)
@click.option("--show-secrets", is_flag=True, help="Write secrets in plain text, not as ***.")
def convert(file: str, to: str | None, output: str | None, show_secrets: bool) -> None:
    """Convert a spec to a JobSet manifest, or back.

    A spec becomes a JobSet manifest. The manifest of a JobSet or Job, a folder of manifests, or
    ADS's YAML becomes a spec. FILE#NAME selects one of several; - is standard input. Fields that
    the output format cannot express are listed on stderr.

    \b
    muster convert job.yaml > jobset.yaml
    muster convert examples/ads/train.yaml
    kubectl get jobset NAME -o yaml | muster convert -
    muster convert jobset.yaml --to muster --output job.yaml
    """
    if output in NAMES:
        text = f"-o names a file here, and {output} is a format of other commands"
        hint = f"use --to muster|jobset to choose, or -o ./{output} for a file of that name"
        raise InvalidInput(Problem("--output", text, hint))
    from muster.client.target import split_target
    from muster.spec.formats.convert import convert_file

    text, notes = convert_file(*split_target(file), to, secrets=show_secrets)
    echo_notes(notes)
    if output is None:
        echo(text, end="", secrets=True)
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise InvalidInput(Problem("--output", f"{output}: {error.strerror}")) from None
