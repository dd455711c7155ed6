"""The `muster` command. Each subcommand is imported when it is used."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from importlib import import_module
from typing import Any, TextIO

import click

from muster.cli.streams import ReaderGone, guard
from muster.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PLATFORM,
    MusterError,
    MusterWarning,
    lack_of,
)
from muster.interrupt import Raised, leave_at_once

#: Subcommand -> (module, one line for the overview).
_COMMANDS = {
    "run": ("muster.cli.run", "Start a run and follow its output."),
    "runs": ("muster.cli.runs", "List, show, suspend, resume, cancel and delete runs."),
    "logs": ("muster.cli.logs", "Show a run's output."),
    "jobs": ("muster.cli.jobs", "Create, list, show, edit and delete jobs."),
    "explain": ("muster.cli.explain", "Say what would run, without running it."),
    "events": ("muster.cli.events", "Show what happened to a run."),
    "simulate": ("muster.cli.simulate", "Say what a long run will cost, failures included."),
    "image": ("muster.cli.image", "Build and push container images of cluster nodes."),
    "cluster": ("muster.cli.cluster", "Start, scale and end clusters that stay."),
    "node": ("muster.cli.node", "Be a node of a cluster that assembles itself."),
    "ports": ("muster.cli.ports", "Say which ports a framework needs."),
    "shapes": ("muster.cli.shapes", "List the shapes that a job may name."),
    "check": ("muster.cli.check", "Try whether a job's nodes can work together."),
    "env": ("muster.cli.env", "List and prune what was installed for runs."),
    "doctor": ("muster.cli.doctor", "Say what this machine can do."),
    "convert": ("muster.cli.convert", "Turn a spec into a JobSet manifest, or back."),
    "schema": ("muster.cli.schema", "Print the JSON Schema of the spec, for editors."),
    "completion": ("muster.cli.completion", "Print shell completion."),
}


class _Lazy(click.Group):
    """A group whose commands are modules with a function of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(_COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], _COMMANDS, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            if "build-image" in args:
                from muster.cli.mistakes import ads_build

                meant = ads_build(args[args.index("build-image") + 1 :])
                hint = f" What is meant is {meant or '`muster image build`'}."
            ctx.fail(f"No command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(None, "-V", "--version", package_name="muster-jobs")
def cli() -> None:
    """Multi-node jobs, described once, run on this machine or on the cluster you have.

    RUN is a run's name, its id or the beginning of one, or `last`.

    \b
    Exit codes: 0 succeeded, 1 the run failed, 2 bad input, 3 canceled,
    suspended or timed out, 4 trouble of the platform, the engine or Muster itself,
    130 interrupted (143, 129: by SIGTERM, SIGHUP).
    """


def main() -> None:
    """The entry point: errors become one clear message and a documented exit code."""
    leave_at_once()
    _open_what_is_closed()
    guard()
    gc.disable()  # a tenth of the time to the first node goes into collecting fresh imports
    code = _run()
    sys.stderr.flush()
    os._exit(code)  # tidying up an interpreter takes longer than some jobs


def _open_what_is_closed() -> None:
    """Standard streams that whoever started us has closed: no other file must take their place."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """What people are to know is for people; any other warning says where it comes from."""
    if issubclass(category, MusterWarning):
        from muster.cli.terminal import warn

        warn(str(message))
    else:
        _show_any_warning(message, category, filename, lineno, file, line)


_show_any_warning = warnings.showwarning


def _run() -> int:
    warnings.showwarning = _show_warning
    try:
        code = _invoke()
        sys.stdout.flush()
    except ReaderGone:
        code = EXIT_OK
    except MusterError as error:
        code = _tell(error)
    except OSError as error:
        lack = lack_of(error)
        code = _tell(lack) if lack is not None else _defect()
    except Exception:  # noqa: BLE001  it must not look like a run that failed
        code = _defect()
    return code


def _defect() -> int:
    """A mistake of ours: all of it is shown."""
    from muster.secrets import print_traceback

    print_traceback()
    return EXIT_PLATFORM


def _invoke() -> int:
    try:
        with Raised():
            code: Any = cli.main(prog_name="muster", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        _show(error)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    return code if isinstance(code, int) else EXIT_OK


def _show(error: click.ClickException) -> None:
    """What click would print, by our way: it quotes arguments, and they may be files' names."""
    import io

    from muster.cli.terminal import echo

    text = io.StringIO()
    error.show(file=text)
    echo(text.getvalue(), err=True, end="")


def _tell(error: MusterError) -> int:
    from muster.cli.terminal import echo, style

    for line in str(error).splitlines():
        echo(f"{style('error:', 'red')} {line}", err=True)
    return error.exit_code
