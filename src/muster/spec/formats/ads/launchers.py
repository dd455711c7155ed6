"""Commands of `pyTorchDistributed`: torchrun, deepspeed and accelerate become Muster's ranks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

from muster.spec.formats.ads.shell import operator_in, split_text
from muster.spec.formats.notes import Notes
from muster.spec.shell import needs_shell

#: Accelerate's: the processes of all nodes together. The others count those of one node.
_ALL_PROCESSES = "--num-processes"
_PROCESSES = ("--nproc-per-node", _ALL_PROCESSES, "--num-gpus")
#: Options that Muster sets itself, or that have no meaning under it.
_NODE_OPTIONS = ("--nnodes", "--node-rank", "--master-addr", "--master-port", "--max-restarts")
_RENDEZVOUS = "--rdzv"
_LAUNCHERS = frozenset(("torchrun", "deepspeed", "accelerate"))
_LAUNCHER = re.compile(r"(?:torchrun|deepspeed|accelerate launch)(?!\S)")
#: Adds a problem: field, what is wrong, what to do.
Refuse = Callable[[str, str, str], None]


class LauncherCommand:
    """Converts the command of one runtime.

    nodes: of the job. has_args: whether the runtime also has `args`.
    """

    def __init__(self, nodes: int, *, has_args: bool, notes: Notes, refuse: Refuse) -> None:
        self._nodes = nodes
        self._has_args = has_args
        self._notes = notes
        self._refuse = refuse

    def convert(self, command: Any) -> dict[str, Any]:
        """`command` and `processes_per_node` of the spec: a launcher's command without the
        launcher, any other command unchanged."""
        text = _as_text(command)
        try:
            words = split_text(text)
        except ValueError as error:
            what = f"cannot be split into words: {text!r}: {error}"
            self._refuse("command", what, "close the quote")
            return {}
        found = _LAUNCHER.match(" ".join(word for word, _ in words[:2]))
        if found is None:
            return {"command": self._keep_command(text, [word for word, _ in words])}
        launcher = found.group()
        operator = operator_in(text)
        if operator is not None:
            what = f"{launcher} is not run here, so no shell reads {operator!r}"
            self._refuse("command", what, "do the rest in the program")
            return {}
        self._notes.add(launcher, "is not run: Muster starts the ranks as it would")
        return self._without(launcher, words[len(launcher.split()) :])

    def _without(self, launcher: str, rest: list[tuple[str, str]]) -> dict[str, Any]:
        """rest: the words after the launcher, each with the text that follows it."""
        made: dict[str, Any] = {}
        while rest and rest[0][0].startswith("-"):
            option, equals, value = rest.pop(0)[0].replace("_", "-").partition("=")
            if not equals and rest and not rest[0][0].startswith("-"):
                value = rest.pop(0)[0]
            if option in _PROCESSES:
                made |= self._processes(launcher, option, value)
            elif option not in _NODE_OPTIONS and not option.startswith(_RENDEZVOUS):
                self._refuse("command", f"{launcher} {option} is not known here", "leave it out")
        text = f"python {rest[0][1] if rest else ''}"
        if needs_shell(text):
            return {**made, "command": self._by_shell(f"exec {text}")}
        return {**made, "command": shlex.split(text)}

    def _processes(self, launcher: str, option: str, value: str) -> dict[str, Any]:
        nodes = self._nodes if option == _ALL_PROCESSES else 1
        if not re.fullmatch("0*[1-9][0-9]*", value):
            text = f"{launcher} {option} must be a number here, not {value!r}"
            each = "on all nodes" if option == _ALL_PROCESSES else "per node"
            self._refuse("command", text, f"write the number of processes {each}")
        elif int(value) % nodes:
            text = f"{launcher} {option} {value}: {value} processes do not divide evenly"
            self._refuse("command", text, f"write a multiple of the {nodes} replicas")
        else:
            return {"processes_per_node": int(value) // nodes}
        return {}

    def _keep_command(self, text: str, words: list[str]) -> list[str]:
        if not needs_shell(text):
            return words
        for launcher in _LAUNCHERS.intersection(words):
            what = "runs on each node: Muster starts the ranks only for a command that starts"
            self._notes.add(launcher, f"{what} with it")
        return self._by_shell(text)

    def _by_shell(self, text: str) -> list[str]:
        if self._has_args:
            what = "cannot be added to a command that a shell runs"
            self._refuse("args", what, "write them into the command")
        return ["sh", "-c", text]


def _as_text(command: Any) -> str:
    """ADS passes text to a shell. The words of a list are quoted, and only variables expanded."""
    if isinstance(command, list):
        return " ".join(_quote(str(word)) for word in command)
    return str(command).replace("\\\n", "").strip()


def _quote(word: str) -> str:
    return _double_quote(word) if "$" in word else shlex.quote(word)


def _double_quote(word: str) -> str:
    return '"' + re.sub(r'(["`\\])', r"\\\1", word) + '"'
