"""Errors for invalid command lines that name the command probably meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from muster.cli.foreign_options import Foreign


def extra_arguments(ctx: click.Context, words: Sequence[str]) -> click.UsageError:
    """The error for extra words after TARGET: suggests `--` before them, or before the whole
    command. words: all words of the command line."""
    target, others = str(ctx.params["target"]), list(ctx.args)
    end = len(words) - 1 - len(others)
    options = words[:end] if [*words[end:]] == [target, *others] else ()
    muster = shlex.join([*ctx.command_path.split(), *options])
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


def no_such_option(
    error: click.NoSuchOption, words: Sequence[str], after: Sequence[str] | None = None
) -> click.UsageError:
    """The error for an unknown option: it may name a setting that has no option, or be an option
    of the program. words: those before `--`. after: those after it; None without `--`."""
    from muster.cli.foreign_options import foreign
    from muster.spec.decode import names
    from muster.spec.models import Resources
    from muster.spec.override_models import RunOverrides
    from muster.spec.wording import close_to

    option = error.option_name.partition("=")[0]
    name = option.lstrip("-").replace("-", "_")
    at = _place(error.option_name, words)
    # click takes -ppn for -p
    known = foreign(words[at]) if at is not None else None
    if known := known or foreign(option):
        hint = _instead(error, words, after, known)
    elif name in ("framework_options", "framework_option"):
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
        hint = f"did you mean {close[0]}?" if close else ""
        if after is None:
            theirs = _if_the_programs(error, words) or "write the program's arguments after --"
            hint = f"{hint} {theirs}".lstrip()
        elif not close and error.ctx is not None:
            hint = f"`{error.ctx.command_path} --help` lists the options"
    return click.UsageError(f"{error.message.rstrip('.')}: {hint}", error.ctx)


def _instead(
    error: click.NoSuchOption, words: Sequence[str], after: Sequence[str] | None, known: Foreign
) -> str:
    """What to write instead of an option of another program: the whole command if possible."""
    # a program may have such an option, too, where its own would follow
    theirs = _if_the_programs(error, words) if after is None else ""
    if theirs:
        if known.hint.startswith("leave"):
            return f"{known.hint}. {theirs[0].upper()}{theirs[1:]}"
        return f"{known.hint}, or {theirs}"
    whole = _translated(error, words, after)
    if not whole:
        return known.hint
    return (
        f"write `{whole}`" if known.hint.startswith("write") else f"{known.hint}. Write `{whole}`"
    )


def _translated(
    error: click.NoSuchOption, words: Sequence[str], after: Sequence[str] | None
) -> str:
    """The command line with options of `muster run` for those of other programs; "" if one has no
    counterpart, or nothing to run is given."""
    from muster.cli.foreign_options import options_of, translate

    if error.ctx is None:
        return ""
    found = translate(words, options_of(error.ctx.command))
    at = _place(error.option_name, words)
    if found is None or at is None or at >= len(words) - len(found.rest):
        return ""
    target = found.rest
    if not target and not after:
        return ""
    if after is None and not os.path.exists(target[0]):
        target = ["--", *target]
    elif after is None and target[1:] and not target[1].startswith("-"):
        target = [target[0], "--", *target[1:]]
    rest = [] if after is None else ["--", *after]
    return shlex.join([*error.ctx.command_path.split(), *found.options, *target, *rest])


def option_before_command(
    error: click.NoSuchOption, words: Sequence[str], group: click.Group
) -> click.UsageError:
    """The error for an option of a command that stands before the command."""
    from muster.cli.foreign_options import options_of

    commands = group.list_commands(click.Context(group))
    at = next((number for number, word in enumerate(words) if word in commands), None)
    if at is None:
        return error
    command = group.get_command(click.Context(group), words[at])
    known = command is not None and error.option_name in options_of(command)
    moved = words[:at] if known else ()
    whole = shlex.join(["muster", words[at], *moved, *words[at + 1 :]])
    text = f"No such option {error.option_name!r} of muster"
    advice = "write it after the command" if known else "leave it out"
    return click.UsageError(f"{text}: {advice}: `{whole}`", error.ctx)


def _place(name: str, words: Sequence[str]) -> int | None:
    """The number of the word with an option. Of -lr=.1, its name is -l."""
    short = not name.startswith("--")
    numbers = (
        number
        for number, word in enumerate(words)
        if word.partition("=")[0] == name or (short and word.startswith(name))
    )
    return next(numbers, None)


def _if_the_programs(error: click.NoSuchOption, words: Sequence[str]) -> str:
    """Where an option of the program belongs; "" if it does not follow a file."""
    at = _place(error.option_name, words) or 0
    before = words[:at]
    if error.ctx is None or not any(os.path.exists(word) for word in before):
        return ""
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
