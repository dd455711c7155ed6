"""docs/cli.md, from the commands themselves: `python -m muster.cli.reference`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from muster.cli.main import cli


def reference_markdown() -> str:
    """One section a command, with what its --help says."""
    intro = [
        "# The command line\n",
        "This page is made from the commands by `python -m muster.cli.reference`.\n",
        "| exit code | |",
        "| --- | --- |",
        "| 0 | the run succeeded; the command did what it was asked |",
        "| 1 | the run failed |",
        "| 2 | bad input; nothing was started |",
        "| 3 | the run was canceled or suspended, or its time was over; `wait --timeout` gave up |",
        "| 4 | trouble of the platform or the engine, or a mistake of Muster's own |",
        "| 129 | the terminal was closed (SIGHUP); the run continues |",
        "| 130 | interrupted (Ctrl-C); the run continues |",
        "| 143 | terminated (SIGTERM); the run continues |\n",
        "A command whose reader has gone (`muster logs last | head -1`) ends with 0; `muster run`,",
        "while its run goes on, by SIGPIPE, as other programs do. Standard output that cannot be",
        "written is 4; standard error that cannot be written changes nothing.",
        "",
        "Control and invisible characters in what programs, files and names hold are printed as",
        "escapes (`\\x1b`), so that they cannot act on the terminal. The output of programs",
        "(`muster logs`, and `muster run` while it follows) is printed as it is.",
        "",
    ]
    return "\n".join([*intro, *_sections(cli, "muster", None)]).rstrip() + "\n"


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command, info_name=name, parent=parent, max_content_width=80, terminal_width=80
    )
    yield f"## {context.command_path}\n"
    yield f"```\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None, "it was listed"
            yield from _sections(found, inner, context)


if __name__ == "__main__":
    print(reference_markdown(), end="")  # noqa: T201
