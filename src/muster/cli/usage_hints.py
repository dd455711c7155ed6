"""Errors for invalid command lines that name the command probably meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Sequence

import click

#: Options that other programs have for `muster run` -> what to write.
_ELSEWHERE = {
    **dict.fromkeys(
        ("-N", "--np", "--num-nodes", "--nnodes", "--num-workers", "--ntasks", "--replicas"),
        "write --nodes N",
    ),
    **dict.fromkeys(
        ("--nproc-per-node", "--ntasks-per-node", "--tasks-per-node"),
        "write --processes-per-node N",
    ),
    **dict.fromkeys(
        ("--gres", "--gpus-per-node", "--accelerators", "--num-gpus"),
        "write --set resources.gpus=N",
    ),
    **dict.fromkeys(("--cpus-per-task", "--num-cpus", "-c"), "write --set resources.cpus=N"),
    "--mem": "write --set resources.memory=4GiB",
    **dict.fromkeys(("--time", "--timeout", "-t"), "write --max-runtime 1h"),
    **dict.fromkeys(("--retries", "--max-retries"), "write --max-restarts N"),
    **dict.fromkeys(
        ("--workdir", "--chdir", "--working-dir", "-w", "-D"), "write --set working_dir=DIR"
    ),
    **dict.fromkeys(("--job-name", "-J"), "write --name NAME"),
    **dict.fromkeys(("--volume", "-v"), "write --mount SRC:PATH"),
    **dict.fromkeys(("--file", "-f"), "name the file without an option: `muster run FILE`"),
    **dict.fromkeys(
        ("--follow", "--wait", "--attach"), "leave it out: a run is followed unless -d is given"
    ),
    **dict.fromkeys(
        ("--interactive", "--tty", "-i"),
        "leave it out; `muster shell RUN` opens a shell in a running node",
    ),
    "--rm": "leave it out; `muster rm RUN` deletes a run that has ended",
    **dict.fromkeys(
        ("--publish", "-p"), "leave it out; `muster open RUN --port N` forwards a port of a node"
    ),
    **dict.fromkeys(
        ("--partition", "--account", "--qos", "--cloud", "--region", "--instance-type"),
        "leave it out: nodes run on this machine",
    ),
}


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


def no_such_option(error: click.NoSuchOption, words: Sequence[str]) -> click.UsageError:
    """The error for an unknown option: it may name a setting that has no option, or be an option
    of the program. words: those before `--`."""
    from muster.spec.decode import names
    from muster.spec.models import Resources
    from muster.spec.override_models import RunOverrides
    from muster.spec.wording import close_to

    option = error.option_name.partition("=")[0]
    name = option.lstrip("-").replace("-", "_")
    # a program may have such an option, too, where its own would follow
    if known := _ELSEWHERE.get(option if len(option) == 2 else option.replace("_", "-")):
        hint = f"{known}, or {_after_dashes(error, words)}"
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
        guess = f"did you mean {close[0]}? " if close else ""
        hint = f"{guess}{_after_dashes(error, words)}"
    return click.UsageError(f"{error.message.rstrip('.')}: {hint}", error.ctx)


def option_before_command(
    error: click.NoSuchOption, words: Sequence[str], commands: Collection[str]
) -> click.UsageError:
    """The error for an option of a command that stands before the command."""
    at = next((number for number, word in enumerate(words) if word in commands), None)
    if at is None:
        return error
    command = shlex.join(["muster", words[at], *words[:at], *words[at + 1 :]])
    text = f"No such option {error.option_name!r} of muster: write it after the command"
    return click.UsageError(f"{text}: `{command}`", error.ctx)


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
