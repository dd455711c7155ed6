"""Errors for invalid command lines that name the command probably meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import click


def extra_arguments(ctx: click.Context) -> click.UsageError:
    """The error for extra words after TARGET: suggests `--` before them, or before the whole
    command."""
    target, others = str(ctx.params["target"]), list(ctx.args)
    muster = ctx.command_path
    whole = f"`{muster} -- {shlex.join([target, *others])}`"
    if os.path.exists(target):
        hint = f"write its arguments after --: `{muster} {shlex.join([target, '--', *others])}`"
    elif os.path.isfile(others[0]):
        script = shlex.join([others[0], *(["--", *others[1:]] if others[1:] else [])])
        hint = f"write `{muster} {script}`, or {whole} for a command"
    else:
        hint = f"write a command after --: {whole}"
    plural = "s" if len(others) > 1 else ""
    text = f"Got unexpected extra argument{plural} ({' '.join(others)}): {hint}"
    return click.UsageError(text, ctx)


def no_such_option(error: click.NoSuchOption, words: Sequence[str]) -> click.UsageError:
    """The error for an unknown option: it may name a setting that has no option, or be an option
    of the program. words: those before `--`."""
    from muster.spec.decode import names
    from muster.spec.models import Resources
    from muster.spec.override_models import RunOverrides
    from muster.spec.wording import close_to

    name = error.option_name.lstrip("-").partition("=")[0].replace("-", "_")
    if name in ("framework_options", "framework_option"):
        hint = "write --option NAME=VALUE"
    elif name == "dry_run":
        hint = "`muster explain` with the same arguments shows what would run, and starts nothing"
    elif name in names(Resources):
        hint = f"write --set resources.{name}=VALUE"
    elif name == "run_name":  # `muster run` has the option
        hint = "only runs have this option: `muster run JOB --run-name TEXT`"
    elif name in names(RunOverrides):
        hint = f"write --set {name}=VALUE"
    else:
        close = close_to(error.option_name, error.possibilities or (), 1, 0.8)
        guess = f"did you mean {close[0]}? " if close else ""
        hint = f"{guess}{_after_dashes(error, words)}"
    return click.UsageError(f"{error.message.rstrip('.')}: {hint}", error.ctx)


def _after_dashes(error: click.NoSuchOption, words: Sequence[str]) -> str:
    """Where an option of the program belongs; the whole command if it follows a file."""
    name = error.option_name  # of -lr=.1, it is -l
    short = not name.startswith("--")
    at = next(
        (
            number
            for number, word in enumerate(words)
            if word.partition("=")[0] == name or (short and word.startswith(name))
        ),
        0,
    )
    before = words[:at]
    if error.ctx is None or not any(os.path.exists(word) for word in before):
        return "write the program's arguments after --"
    command = shlex.join([*before, "--", *words[at:]])
    return f"if it is the program's, put it after --: `{error.ctx.command_path} {command}`"


#: Option of `ads opctl build-image` -> option of `muster image build`; "" if not needed.
_ADS_OPTIONS = {
    "--type": "--framework",
    "--image-name": "--tag",
    "--source-folder": "--source",
    "-s": "--source",
    "--backend": "",
    "-b": "",
}


def image_build_for_ads(words: Sequence[str]) -> str:
    """The `muster image build` command for the options of ADS's `build-image`.

    Empty if `words` has no option that only ADS has.
    """
    if not any(word.partition("=")[0] in _ADS_OPTIONS for word in words):
        return ""
    converted: list[str] = []
    rest = list(words)
    while rest:
        word, separator, value = rest.pop(0).partition("=")
        name = _ADS_OPTIONS.get(word, word)
        if separator or (word in _ADS_OPTIONS and rest):
            value = value if separator else rest.pop(0)
            if name == "--framework":
                value = value.lower().partition("-")[0]  # ADS: horovod-pytorch, horovod-tensorflow
            converted += [name, value] if name else []
        elif name:
            converted.append(name)
    return f"muster image build {shlex.join(converted)}"
