"""What a job asks of Slurm, or a profile by default: options of `sbatch` that are passed on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.errors import Problem
from muster.spec.wording import close_to, say

#: Options with a value, by name; also those of `spec.models.Slurm`.
FLAGS = {
    "account": "--account",
    "partition": "--partition",
    "qos": "--qos",
    "constraint": "--constraint",
    "reservation": "--reservation",
    "licenses": "--licenses",
    "switches": "--switches",
    "gres": "--gres",
    "gpus_per_node": "--gpus-per-node",
    "tres_per_node": "--tres-per-node",
    "tres_per_task": "--tres-per-task",
    "nodelist": "--nodelist",
    "exclude": "--exclude",
    "time": "--time",
}
#: All names. exclusive: whether nodes of a job run nothing else; spares: how many nodes an
#: allocation has besides those that run; extra: flags as `sbatch` has them.
NAMES = (*FLAGS, "exclusive", "spares", "extra")
#: What Muster sets, and what would take a job from its control.
_OWN_FLAGS = (
    *("--job-name", "--nodes", "--ntasks", "--ntasks-per-node", "--output", "--error"),
    *("--open-mode", "--chdir", "--wrap", "--array", "--requeue", "--no-requeue"),
    *("--kill-on-invalid-dep", "--wait", "--parsable", "--test-only", "--export", "--input"),
    "--no-kill",
)
#: What would mislead Muster, and what to do instead.
_REFUSED_FLAGS = {
    "--clusters": "set SLURM_CONF to the configuration of the other cluster",
    "--signal": "use checkpoint, as in checkpoint: {signal: SIGUSR1, grace: 5m}",
}
#: A flag without a value, or with one after =: short ones can be bundled, and then hide others.
_LONG_FLAG = re.compile(r"--[A-Za-z0-9][A-Za-z0-9_-]*(=|$)")
#: What `sbatch` reads as written in a script.
_PLAIN = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_MOST_SPARES = 1024
#: Slurm's own: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS[:MINUTES[:SECONDS]].
_TIME = re.compile(r"\d+(:\d\d){0,2}|\d+-\d+(:\d\d){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)


def option_problems(options: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with options, by name, except for unknown names."""
    for name in FLAGS:
        value = options.get(name, "x")
        if name == "time" and "time" in options:
            if not isinstance(value, str) or not _TIME.fullmatch(value):
                hint = 'as for sbatch: "90" (minutes), "12:00:00" or "2-00:00:00"'
                yield Problem(name, f"must be a time limit of Slurm, not {say(value)}", hint)
        elif not isinstance(value, str) or not value or not value.isprintable() or '"' in value:
            text = f"must be one line of text without quotes, not {say(value)}"
            yield Problem(name, text)
    if not isinstance(exclusive := options.get("exclusive", False), bool):
        hint = 'extra = ["--exclusive=user"] shares machines with jobs of the user'
        yield Problem("exclusive", f"must be true or false, not {say(exclusive)}", hint)
    spares = options.get("spares", 0)
    if not isinstance(spares, int) or isinstance(spares, bool) or not 0 <= spares <= _MOST_SPARES:
        yield Problem("spares", f"must be between 0 and {_MOST_SPARES}, not {say(spares)}")
    extra = options.get("extra", [])
    if not isinstance(extra, (list, tuple)):
        hint = 'as in extra = ["--mail-type=END"]'
        yield Problem("extra", f"must be a list of flags, not {say(extra)}", hint)
        return
    for number, flag in enumerate(extra):
        yield from _flag_problems(f"extra[{number}]", flag)


def _flag_problems(path: str, flag: object) -> Iterator[Problem]:
    if not isinstance(flag, str) or not flag.startswith("-") or not flag.isprintable():
        hint = 'as in "--mail-type=END"'
        yield Problem(path, f"must be a flag of sbatch, not {say(flag)}", hint)
    elif '"' in flag:
        yield Problem(path, "must have no quotes")
    elif not _LONG_FLAG.match(flag):
        hint = 'write the long form, as in "--mail-type=END"'
        yield Problem(path, f"must be a long flag of sbatch, with =, not {say(flag)}", hint)
    elif refused := _flag_of(flag.partition("=")[0], [*_REFUSED_FLAGS]):
        yield Problem(path, f"{refused} is not possible with Muster", _REFUSED_FLAGS[refused])
    elif own := _flag_of(flag.partition("=")[0], _OWN_FLAGS):
        text = f"{own} is set by Muster"
        yield Problem(path, text, "leave it out: nodes, resources and names are those of the job")


def _flag_of(name: str, flags: Sequence[str]) -> str:
    """The one of these flags that `sbatch` takes a name for, also if it is the beginning of one; ""
    if for none."""
    return name if name in flags else next((f for f in flags if f.startswith(name)), "")


def unknown_names(options: Mapping[str, Any], others: tuple[str, ...] = ()) -> Iterator[Problem]:
    """A problem for each name that is neither of an option nor one of the others."""
    known = (*NAMES, *others)
    for name in options:
        if name not in known:
            close = close_to(name, [*known])
            hint = f'did you mean "{close[0]}"?' if close else f"there are {', '.join(known)}"
            yield Problem(name, "unknown setting", hint)


def merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group. defaults: of the profile. given: in the job. `extra` of both."""
    extra = [*defaults.get("extra", ()), *given.get("extra", ())]
    return {**defaults, **given, **({"extra": extra} if extra else {})}


def flags(options: Mapping[str, Any]) -> list[str]:
    """The flags of `sbatch` for options."""
    found = [f"{flag}={options[name]}" for name, flag in FLAGS.items() if name in options]
    if options.get("exclusive"):
        found.append("--exclusive")
    return [*found, *options.get("extra", ())]


def quoted(flag: str) -> str:
    """A flag as one word in a line of a script, as `sbatch` parses it: spaces end a word, # begins
    a comment, a backslash quotes. flag: printable, without double quotes."""
    if _PLAIN.fullmatch(flag):
        return flag
    return '"' + flag.replace("\\", "\\\\") + '"'


def minutes(seconds: float) -> int:
    """A time limit in minutes, the smallest unit of Slurm."""
    return math.ceil(seconds / 60)
