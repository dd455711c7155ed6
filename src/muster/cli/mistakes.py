"""Command lines that cannot be read: what was probably meant by them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

import click


def too_many_words(ctx: click.Context) -> click.UsageError:
    """One TARGET is all there can be: the others are its arguments, or all of them a command."""
    target, others = str(ctx.params["target"]), list(ctx.args)
    muster = ctx.command_path
    whole = f"`{muster} -- {shlex.join([target, *others])}`"
    if os.path.exists(target):
        hint = f"its arguments stand after --: `{muster} {shlex.join([target, '--', *others])}`"
    elif os.path.isfile(others[0]):
        script = shlex.join([others[0], *(["--", *others[1:]] if others[1:] else [])])
        hint = f"write `{muster} {script}`, or {whole} for a command"
    else:
        hint = f"a command stands after --: {whole}"
    plural = "s" if len(others) > 1 else ""
    text = f"Got unexpected extra argument{plural} ({' '.join(others)}): {hint}"
    return click.UsageError(text, ctx)


def no_such_option(error: click.NoSuchOption) -> click.UsageError:
    """Settings that have no option of their own, and options that are the program's."""
    from muster.spec.decode import names
    from muster.spec.models import Resources
    from muster.spec.override_models import RunOverrides
    from muster.spec.wording import close_to

    name = error.option_name.lstrip("-").partition("=")[0].replace("-", "_")
    if name in ("framework_options", "framework_option"):
        hint = "write --option NAME=VALUE"
    elif name == "dry_run":
        hint = "`muster explain` with the same words shows what would run, and starts nothing"
    elif name in names(Resources):
        hint = f"write --set resources.{name}=VALUE"
    elif name == "run_name":  # `muster run` has the option
        hint = "a job has runs, each with a name of its own: `muster run JOB --run-name TEXT`"
    elif name in names(RunOverrides):
        hint = f"write --set {name}=VALUE"
    else:
        close = close_to(error.option_name, error.possibilities or (), 1, 0.8)
        meant = f"did you mean {close[0]}? " if close else ""
        hint = f"{meant}what the program is to get stands after --"
    return click.UsageError(f"{error.message.rstrip('.')}: {hint}", error.ctx)


#: What `ads opctl build-image` calls an option of `muster image build`, "" for what is not needed.
_ADS_BUILD = {
    "--type": "--framework",
    "--image-name": "--tag",
    "--source-folder": "--source",
    "-s": "--source",
    "--backend": "",
    "-b": "",
}


def ads_build(words: Sequence[str]) -> str:
    """`muster image build` for the options of ADS's `build-image`, ready to be pasted; empty if
    there are none of its own among them."""
    if not any(word.partition("=")[0] in _ADS_BUILD for word in words):
        return ""
    meant: list[str] = []
    left = list(words)
    while left:
        word, separator, value = left.pop(0).partition("=")
        name = _ADS_BUILD.get(word, word)
        if separator or (word in _ADS_BUILD and left):
            value = value if separator else left.pop(0)
            if name == "--framework":
                value = value.lower().partition("-")[0]  # ADS: horovod-pytorch, horovod-tensorflow
            meant += [name, value] if name else []
        elif name:
            meant.append(name)
    return f"`muster image build {shlex.join(meant)}`"
