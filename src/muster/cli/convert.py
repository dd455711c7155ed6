"""`muster convert`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from muster.cli import completion_values as values
from muster.cli.formats import NAMES
from muster.cli.terminal import echo, echo_notes, warn
from muster.errors import InvalidInput, Problem
from muster.secrets import HIDDEN, redacted

#: Why what an engine applies cannot be applied otherwise.
_UNKNOWN = f"; kubectl cannot, as {HIDDEN} stands for what each run has of its own"


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
@click.option(
    "--engine",
    metavar="NAME",
    shell_complete=values.engines,
    help="Write the manifest this engine applies (needs Muster), not a standalone JobSet.",
)
def convert(
    file: str, to: str | None, output: str | None, show_secrets: bool, engine: str | None
) -> None:
    """Convert a spec to a JobSet manifest, or back.

    A spec becomes a JobSet manifest. The manifest of a JobSet or Job, a folder of manifests, or
    ADS's YAML becomes a spec. FILE#NAME selects one of several; - is standard input. Fields that
    the output format cannot express are listed on stderr, first those without which the output
    cannot be used.

    \b
    muster convert job.yaml > jobset.yaml
    muster convert examples/ads/train.yaml
    kubectl get jobset NAME -o yaml | muster convert -
    muster convert jobset.yaml --to muster --output job.yaml
    muster convert job.yaml --to jobset --engine kubernetes
    """
    if output in NAMES:
        text = f"-o names a file here, and {output} is a format of other commands"
        hint = f"use --to muster|jobset to choose, or -o ./{output} for a file of that name"
        raise InvalidInput(Problem("--output", text, hint))
    from muster.client.target import split_target
    from muster.spec.formats.convert import convert_file

    if engine is not None:
        text = _applied_by(engine, file, to)
        text = text if show_secrets else redacted(text)
        text = _about(engine, file, is_whole=HIDDEN not in text) + text
    else:
        text, notes, warnings = convert_file(*split_target(file), to, secrets=show_secrets)
        for one in warnings:
            warn(one)
        echo_notes(notes)
    if output is None:
        echo(text, end="", secrets=True)
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise InvalidInput(Problem("--output", f"{output}: {error.strerror}")) from None


def _about(engine: str, file: str, *, is_whole: bool) -> str:
    """A comment above what an engine applies. is_whole: whether nothing of it is hidden."""
    command = f"muster run {quote(file)} --engine {engine}"
    otherwise = ", or with `kubectl apply`" if is_whole else _UNKNOWN
    return f"# What engine {engine} applies. Apply it with `{command}`{otherwise}.\n"


def _applied_by(engine: str, file: str, to: str | None) -> str:
    """The manifests that an engine applies when it runs a job, as `muster explain` shows them.
    Raises InvalidInput."""
    from muster.cli.explain import created_for
    from muster.spec.reader import is_manifest

    if to == "muster":
        text = "conflicts with --to muster: engines apply manifests"
        raise InvalidInput(Problem("--engine", text, "leave one of them out"))
    texts = created_for(file, engine)
    if not texts or not all(map(is_manifest, texts)):
        hint = "`muster explain` shows what it creates"
        raise InvalidInput(Problem("--engine", f"engine {engine} applies no manifests", hint))
    return "---\n".join(texts)
