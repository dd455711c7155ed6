"""The command that was probably meant where there is none of the given name."""

from __future__ import annotations

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
    "port-forward": "open RUN",
    "py-spy": "stacks RUN",
    "queue": "ps",
    "sacct": "ps",
    "sbatch": "run RUN --detach",
    "scancel": "cancel RUN",
    "show": "status RUN",
    "sinfo": "doctor",
    "squeue": "ps",
    "srun": "run RUN",
    "ssh": "shell RUN",
    "sstat": "top RUN",
    "start": "run RUN",
    "stats": "top RUN",
    "stop": "cancel RUN",
    "submit": "run RUN",
    "tail": "logs RUN --follow",
    "terminate": "cancel RUN",
    "torchrun": "run --framework pytorch -- torchrun",
    "up": "run RUN",
    "version": "--version",
}
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
            raise no_such_command(ctx, args[0], meant and f"{ctx.command_path} {meant}")
        return super().resolve_command(ctx, args)


def no_such_command(ctx: click.Context, name: str, meant: str) -> click.UsageError:
    """The error for an unknown command. meant: the whole command that was probably meant, or ""."""
    hint = f"Did you mean `{meant}`?" if meant else f"`{ctx.command_path} --help` lists them."
    return click.UsageError(f"No such command {name!r}. {hint}", ctx)


def in_group(name: str, known: Collection[str]) -> str:
    """The command of a group that was probably meant, or ""."""
    from muster.spec.wording import close_to

    others = (other for other in _IN_GROUPS.get(name, "").split() if other in known)
    return next(others, "") or "".join(close_to(name, known))


def at_top(words: Sequence[str], known: Collection[str]) -> str:
    """The command that was probably meant by these words, or ""."""
    from muster.cli.runs import runs
    from muster.spec.wording import close_to

    name, *others = words
    if meant := _ELSEWHERE.get(name):
        if meant.startswith("run "):
            others = [word for word in others if word not in ("-f", "--file", "--filename")]
        argument = {"run": "TARGET", "help": "COMMAND", "job": "--help"}
        rest = shlex.join(others) or argument.get(
            name, argument.get(meant.partition(" ")[0], "RUN")
        )
        return f"muster {meant.replace('RUN', rest)}"
    if name in runs.commands:
        return shlex.join(["muster", "runs", *words])
    longer = [command for command in known if len(command) > 2]  # rm is close to run
    return "".join(f"muster {close}" for close in close_to(name, longer))
