"""The command that was probably meant where there is none of the given name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence

import click

#: A name that other programs have for a command -> the command here. RUN stands for the words
#: that follow the name.
_ELSEWHERE = {
    "apply": "run RUN",
    "attach": "logs RUN --follow",
    "clean": "prune",
    "delete": "rm RUN",
    "describe": "status RUN",
    "down": "cancel RUN",
    "du": "disk",
    "gc": "prune",
    "get": "ps",
    "help": "RUN --help",
    "history": "ps",
    "info": "status RUN",
    "inspect": "status RUN",
    "kill": "cancel RUN",
    "launch": "run RUN",
    "job": "jobs RUN",
    "list": "ps",
    "log": "logs RUN",
    "ls": "ps",
    "py-spy": "stacks RUN",
    "queue": "ps",
    "sacct": "ps",
    "scancel": "cancel RUN",
    "show": "status RUN",
    "sinfo": "doctor",
    "squeue": "ps",
    "ssh": "shell RUN",
    "sstat": "top RUN",
    "start": "run RUN",
    "stats": "top RUN",
    "stop": "cancel RUN",
    "submit": "run RUN",
    "tail": "logs RUN --follow",
    "terminate": "cancel RUN",
    "up": "run RUN",
    "version": "--version",
}
#: Ends of the names of files that can be run.
_TARGETS = (".py", ".yaml", ".yml", ".ipynb", ".sh")
#: The same within a group of commands, such as `muster runs`: the first of these that it has.
_IN_GROUPS = {
    "create": "up",
    "delete": "down",
    "describe": "show",
    "get": "list",
    "inspect": "show",
    "kill": "cancel down",
    "ls": "list",
    "ps": "list",
    "remove": "delete down",
    "rm": "delete down",
    "start": "up",
    "status": "show",
    "stop": "cancel down",
    "submit": "create",
}
#: Of kubectl: [LOCAL_PORT:]PORT.
_PORTS = re.compile(r"(?:(\d*):)?(\d+)")
#: Commands that delete or end something: suggested only for what is nearly their name.
_DELETING = ("cancel", "delete", "down", "prune", "rm")
#: The similarity from which a word is probably a typing error of one of these.
_TYPO = 0.8


class Group(click.Group):
    """A group of commands whose errors name the command that was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raises UsageError with a hint."""
        known = self.list_commands(ctx)
        unknown = args and args[0] not in known and not args[0].startswith("-")
        if unknown and not ctx.resilient_parsing:
            meant = in_group(args[0], known)
            raise no_such_command(ctx, args[0], *(f"{ctx.command_path} {one}" for one in meant))
        return super().resolve_command(ctx, args)


def no_such_command(ctx: click.Context, name: str, *meant: str) -> click.UsageError:
    """The error for an unknown command. meant: whole commands, of which one was probably meant."""
    guess = " or ".join(f"`{command}`" for command in meant)
    hint = f"Did you mean {guess}?" if meant else f"`{ctx.command_path} --help` lists them."
    return click.UsageError(f"No such command {name!r}. {hint}", ctx)


def in_group(name: str, known: Collection[str]) -> list[str]:
    """The command of a group that was probably meant, if there is one."""
    others = [other for other in _IN_GROUPS.get(name, "").split() if other in known]
    return others[:1] or _similar(name, known)


def _similar(name: str, known: Collection[str]) -> list[str]:
    """The command with a similar name, if there is one; two if one of them deletes something."""
    from muster.spec.wording import close_to

    harmless = [command for command in known if command not in _DELETING]
    typos = close_to(name, known, 2, _TYPO)
    if typos[:1] and typos[0] in _DELETING:
        return sorted(typos, key=_DELETING.__contains__)
    return close_to(name, harmless)


def at_top(words: Sequence[str], known: Collection[str]) -> list[str]:
    """The commands of which one was probably meant by these words; none if there is no guess."""
    from muster.cli.foreign_options import LAUNCHERS, of_launcher
    from muster.cli.runs import runs

    name, *others = words
    if name in LAUNCHERS:
        found = of_launcher(name, others)
        mpi = name.startswith("mpi") and "PROGRAM" not in found
        with_mpi = found.replace("muster run", "muster run --framework mpi", 1)
        return [found, with_mpi] if mpi else [found]
    if name == "restart":
        return [f"muster runs resume {shlex.join(others) or 'RUN'}", "muster run JOB"]
    if name == "port-forward":
        return [_open(others)]
    if meant := _ELSEWHERE.get(name):
        if meant.startswith("run "):
            others = [word for word in others if word not in ("-f", "--file", "--filename")]
        argument = {"run": "TARGET", "help": "COMMAND", "job": "--help"}
        rest = shlex.join(others) or argument.get(
            name, argument.get(meant.partition(" ")[0], "RUN")
        )
        return [f"muster {meant.replace('RUN', rest)}"]
    if name in runs.commands:
        return [shlex.join(["muster", "runs", *words])]
    if name.endswith(_TARGETS) or os.path.isfile(name):
        return [shlex.join(["muster", "run", name, *_after_target(others)])]
    longer = [command for command in known if len(command) > 2]  # rm is close to run
    return [f"muster {close}" for close in _similar(name, longer)]


def _open(words: Sequence[str]) -> str:
    """The command for the words after `kubectl port-forward`: RUN [LOCAL_PORT:]PORT."""
    is_run = words and not words[0].startswith("-") and not _PORTS.fullmatch(words[0])
    run = words[0] if is_run else "RUN"
    ports = next((found for word in words if (found := _PORTS.fullmatch(word))), None)
    if ports is None:
        return shlex.join(["muster", "open", run, "--port", "N"])
    local = ["--local-port", ports[1]] if ports[1] else []
    return shlex.join(["muster", "open", run, "--port", ports[2], *local])


def _after_target(words: list[str]) -> list[str]:
    """The words after a file as those of `muster run`: after `--` if they are the program's."""
    from muster.cli.foreign_options import options_of
    from muster.cli.run import run

    if not words or "--" in words:
        return words
    names = [word.partition("=")[0] for word in words if word.startswith("-")]
    own = words[0].startswith("-") and {*names} <= {*options_of(run)}
    return words if own else ["--", *words]
