"""`muster completion`, and what the scripts that it prints call when Tab is pressed.

A script passes the words up to the cursor, one a line, and gets a line for each possible value:
its kind (`plain` or `file`), the value and a description, separated by tabs. For `file`, the shell
itself completes file names.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    split_arg_string,
)

from muster.cli.terminal import echo
from muster.escapes import visible_line

_SHELLS = ("bash", "zsh", "fish")


class _Words(ShellComplete):
    """Reads the words that a script passes, and writes values for it."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The complete words after `muster`, and the incomplete one."""
        _, *words, last = ["", *os.environ["COMP_WORDS"].split("\n")]
        given = [_unquoted(word) for word in words[1:]]
        # click does not parse arguments before an option without its value
        self.ctx_args = {**self.ctx_args, "obj": given}
        return given, _unquoted(last)

    def format_completion(self, item: CompletionItem) -> str:
        """The line for a value."""
        about = (item.help or "").partition("\n")[0].replace("\t", " ")
        return f"{item.type}\t{visible_line(item.value)}\t{visible_line(about)}"


def _unquoted(word: str) -> str:
    """A word as the shell would pass it; its last quote may be open."""
    return "".join(split_arg_string(word))


def register() -> None:
    """Make click answer the scripts."""
    for shell in _SHELLS:
        add_completion_class(_Words, shell)


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(**options: Any) -> None:
    """Print the completion script for bash, zsh or fish.

    \b
    bash: muster completion bash > ~/.local/share/bash-completion/completions/muster
    zsh:  muster completion zsh > ~/.zfunc/_muster
    fish: muster completion fish > ~/.config/fish/completions/muster.fish

    Create the folder first (mkdir -p) if it does not exist. In zsh, ~/.zfunc must be in $fpath
    before compinit is called. To try it in this shell, in zsh after compinit:

    \b
    source <(muster completion bash)
    source <(muster completion zsh)
    """
    script = files("muster.cli").joinpath(f"completion.{options['shell']}")
    echo(script.read_text(), end="")
