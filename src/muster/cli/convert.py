"""`muster convert`."""

from __future__ import annotations

from pathlib import Path

import click

from muster.cli.terminal import echo, echo_notes
from muster.errors import InvalidInput, Problem


@click.command()
@click.argument("file")
@click.option(
    "--to",
    type=click.Choice(["jobset", "muster"]),
    help="What to make of it (default: the one it is not).",
)
@click.option("--output", "-o", metavar="FILE", help="Write it there instead of to stdout.")
@click.option("--show-secrets", is_flag=True, help="Write secrets as they are, not as ***.")
def convert(file: str, to: str | None, output: str | None, show_secrets: bool) -> None:
    """Turn a spec into a JobSet manifest, or a manifest into a spec.

    FILE is a spec, a JobSet manifest (or a folder of them) or ADS's YAML, which become specs; - is
    standard input. FILE#NAME is one JobSet of several. What cannot be said, or means nothing
    there, is listed on stderr.

    \b
    muster convert job.yaml > jobset.yaml
    muster convert examples/ads/train.yaml
    kubectl get jobset NAME -o yaml | muster convert -
    muster convert jobset.yaml --to muster --output job.yaml
    """
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
