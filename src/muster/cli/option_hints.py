"""Options that other programs have for commands that look at runs, and what to write."""

from __future__ import annotations

import click

_LIST = {
    "-A": "write --all",
    "--all-namespaces": "write --all",
    "-u": "leave it out: all runs are listed",
    "--user": "leave it out: all runs are listed",
    "--filter": "write --state STATE, --job JOB, --tag K=V or --since TIME",
    "--format": "write -o json, -o yaml or -o wide",
    "--watch": "`muster top` shows the nodes of all running runs, live",
    "-w": "`muster top` shows the nodes of all running runs, live",
    "-n": "write --limit N",
}
_SHOW = dict.fromkeys(
    ("--watch", "-w", "--follow", "-f"),
    "`muster events RUN --follow` shows what happens to a run, live",
)
_DELETE = dict.fromkeys(("--force", "-f"), "write --yes; runs that are given by name need nothing")
#: Path of a command -> option -> what to write.
_HINTS = {
    "logs": {
        **dict.fromkeys(("--node", "--nodes", "--pod", "--replica"), "write --rank N"),
        **dict.fromkeys(("--lines", "--last"), "write --tail N"),
        **dict.fromkeys(
            ("--previous", "-p"), "write --attempt N; `muster events RUN` shows the attempts"
        ),
        **dict.fromkeys(("--container", "-c"), "write --group GROUP, --rank N or --service NAME"),
    },
    "events": dict.fromkeys(
        ("-n", "--tail", "--lines", "--limit"),
        "write `muster events RUN | tail -n N`; --after N shows those after number N",
    ),
    "ps": _LIST,
    "runs list": _LIST,
    "status": _SHOW,
    "runs show": _SHOW,
    "rm": _DELETE,
    "runs delete": _DELETE,
}


def with_hint(error: click.NoSuchOption) -> click.UsageError:
    """The error, with what to write if the option is one of another program."""
    ctx = error.ctx
    path = "" if ctx is None else ctx.command_path.partition(" ")[2]
    hint = _HINTS.get(path, {}).get(error.option_name)
    if hint is None:
        return error
    return click.UsageError(f"{error.message.rstrip('.')}: {hint}", ctx)
