"""ADS: `kind: job`, one program on one node, or PyTorch on several."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_words import environment, python_path, words_of, write_back
from muster.spec.formats.notes import Notes
from muster.spec.source_paths import is_requirements_file

_SPEC = "spec.runtime.spec"
#: Launchers' options that say how many processes run; and torchrun's that say what Muster says, or
#: that mean nothing under it.
_ALL_PROCESSES = "--num-processes"  # Accelerate's, on all nodes together; the others are a node's
_PROCESSES = ("--nproc-per-node", _ALL_PROCESSES, "--num-gpus")
_NODES_OPTIONS = ("--nnodes", "--node-rank", "--master-addr", "--master-port", "--max-restarts")
_RDZV = "--rdzv"


def single_job(
    spec: ads.JobSpec, folder: Path, notes: Notes, problems: list[Problem]
) -> dict[str, Any]:
    """The spec as data. problems: what cannot be honoured is added."""
    return _Reader(spec, folder, notes, problems).read()


class _Reader:
    def __init__(
        self, spec: ads.JobSpec, folder: Path, notes: Notes, problems: list[Problem]
    ) -> None:
        self._spec = spec
        self._runtime = spec.runtime.spec
        self._folder = folder
        self._notes = notes
        self._problems = problems

    def read(self) -> dict[str, Any]:
        runtime = self._runtime
        by_type = {
            "script": self._script,
            "python": self._python,
            "notebook": self._notebook,
            "gitPython": self._git,
            "container": self._container,
            "pyTorchDistributed": self._pytorch,
        }
        minutes = runtime.maximum_runtime_in_minutes
        made = {
            "name": self._spec.name or self._spec.infrastructure.spec.display_name,
            "nodes": runtime.replicas,
            "tags": dict(runtime.freeform_tags),
            "max_runtime": None if minutes is None else 60 * minutes,
            "args": list(runtime.args),
            "env": {**environment(runtime.env), **python_path(runtime.python_path)},
            **by_type[self._spec.runtime.type](),
        }
        if runtime.output_uri is not None:
            made["mounts"] = [*made.get("mounts", ()), self._output(runtime.output_uri)]
        return {name: value for name, value in made.items() if value not in (None, [], {})}

    # --- one runtime each

    def _script(self) -> dict[str, Any]:
        return self._code(self._runtime.script_path_uri, "scriptPathURI", self._entry())

    def _python(self) -> dict[str, Any]:
        if self._runtime.entry_function is not None:
            text = "Muster runs programs, not single functions of them"
            hint = "call it under `if __name__ == '__main__'`; or see @muster.job in docs/python.md"
            self._refuse("entryFunction", text, hint)
        return {**self._script(), **self._working_dir()}

    def _notebook(self) -> dict[str, Any]:
        runtime = self._runtime
        tags = list(runtime.exclude_tags)
        notebook = {"notebook": {"exclude_tags": tags}} if tags else {}
        if runtime.source is not None:
            return {**self._code(runtime.source, "source", self._entry()), **notebook}
        return {**self._code(runtime.notebook_path_uri, "notebookPathURI", None), **notebook}

    def _git(self) -> dict[str, Any]:
        runtime = self._runtime
        if runtime.entry_function is not None:
            self._refuse("entryFunction", "Muster runs programs, not functions", "leave it out")
        if runtime.url is None:
            self._refuse("url", "is missing", "say where the repository is")
        entry = self._entry()
        if entry is None:
            self._refuse("entrypoint", "is missing", "name the program in the repository")
        git = {"url": runtime.url, "branch": runtime.branch, "commit": runtime.commit}
        return {
            "git": {k: v for k, v in git.items() if v is not None},
            "entrypoint": entry,
            **self._working_dir(),
        }

    def _container(self) -> dict[str, Any]:
        runtime = self._runtime
        self._notes.add("image", "is not used: programs are those of this machine")
        words = [*self._words("entrypoint"), *self._words("cmd")]
        if not words:
            text = "without entrypoint or cmd only the image knows what runs"
            self._refuse("cmd", text, "write what the image's own command does")
        code = {}
        if runtime.script_path_uri is not None:
            code = {"artifact": self._path(runtime.script_path_uri, "scriptPathURI")}
        return {"command": words, "image": runtime.image, **code}

    def _pytorch(self) -> dict[str, Any]:
        runtime = self._runtime
        source = runtime.source or runtime.script_path_uri
        made: dict[str, Any] = {"framework": "pytorch", **self._requirements(source)}
        if runtime.git is not None:
            git = {"url": runtime.git.url, "branch": runtime.git.branch}
            git["commit"] = runtime.git.commit
            made["git"] = {k: v for k, v in git.items() if v is not None}
        else:
            made |= self._code(source, "source", None)
        if runtime.command is None:
            self._refuse("command", "is missing", "write torchrun train.py, say")
            return made
        words = words_of(runtime.command, f"{_SPEC}.command", self._problems)
        return {**made, **self._launched(words), **self._working_dir()}

    def _launched(self, words: Sequence[str]) -> dict[str, Any]:
        """A launcher's command without the launcher: Muster starts the ranks itself."""
        if words[:1] == ["torchrun"] or words[:1] == ["deepspeed"]:
            rest = list(words[1:])
        elif list(words[:2]) == ["accelerate", "launch"]:
            rest = list(words[2:])
        else:
            return {"command": list(words)}
        self._notes.add(words[0], "is not run: Muster starts the ranks as it would")
        made: dict[str, Any] = {}
        while rest and rest[0].startswith("-"):
            option, equals, value = rest.pop(0).replace("_", "-").partition("=")
            if not equals and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            if option in _PROCESSES:
                made |= self._processes(words[0], option, value)
            elif option not in _NODES_OPTIONS and not option.startswith(_RDZV):
                text = f"{words[0]} {option} is not known here"
                self._refuse("command", text, "leave it out")
        return {**made, "command": ["python", *rest]}

    def _processes(self, launcher: str, option: str, value: str) -> dict[str, Any]:
        nodes = self._runtime.replicas if option == _ALL_PROCESSES else 1
        if not re.fullmatch("0*[1-9][0-9]*", value):
            text = f"{launcher} {option} must be a number here, not {value!r}"
            each = "on all nodes" if option == _ALL_PROCESSES else "a node"
            self._refuse("command", text, f"write how many processes {each}")
        elif int(value) % nodes:
            text = f"{launcher} {option} {value}: {value} processes cannot be as many on each node"
            self._refuse("command", text, f"write a multiple of the {nodes} replicas")
        else:
            return {"processes_per_node": int(value) // nodes}
        return {}

    # --- what they share

    def _entry(self) -> str | None:
        words = self._words("entrypoint")
        return words[0] if words else None

    def _code(self, uri: str | None, field: str, entry: str | None) -> dict[str, Any]:
        if uri is None:
            self._refuse(field, "is missing", "say where the code is")
            return {}
        made: dict[str, Any] = {"artifact": self._path(uri, field)}
        return made if entry is None else {**made, "entrypoint": entry}

    def _path(self, uri: str, field: str) -> str:
        path = uri.removeprefix("file://")
        if "://" in path:
            text = f"{uri} is not at hand"
            self._refuse(field, text, "fetch it first, or use git; or a mount and a command")
        elif not os.path.exists(self._folder / path):
            self._refuse(field, f"there is no {self._folder / path}", "check the path")
        return path

    def _working_dir(self) -> dict[str, Any]:
        # in ADS's words it begins at the code, as here
        where = self._runtime.working_dir
        if where in (None, "", "."):
            return {}
        text = "the program starts where the code is"
        self._refuse("workingDir", text, "say working_dir for a group in a spec of Muster's own")
        return {}

    def _requirements(self, source: str | None) -> dict[str, Any]:
        """ADS installs both, from where the code is."""
        asked = self._runtime.dependencies
        lines = []
        if asked.pip_requirements is not None:
            lines.append(self._requirements_file(asked.pip_requirements, source))
        if asked.pip_packages is not None:
            path = f"{_SPEC}.dependencies.pipPackages"
            lines += words_of(asked.pip_packages, path, self._problems)
        return {"requirements": lines} if lines else {}

    def _requirements_file(self, name: str, source: str | None) -> str:
        field = "dependencies.pipRequirements"
        if not is_requirements_file(name):
            self._refuse(field, f"{name} is no .txt file", "give it a name that ends in .txt")
            return name
        source = (source or "").removeprefix("file://")
        if self._runtime.git is not None or not source or "://" in source:
            return name  # of the repository; or the code is not at hand, which is told
        code = self._folder / source
        file = (code if os.path.isdir(code) else code.parent) / name
        if not os.path.isfile(file):
            hint = "it is looked for in the folder of the code"
            self._refuse(field, f"there is no {file}", hint)
        return str(file)

    def _output(self, uri: str) -> dict[str, Any]:
        return write_back(uri, self._runtime.output_dir or "/mnt/outputs")

    def _words(self, field: str) -> list[str]:
        """ADS: a list, or text split at commas outside of quotes; without commas at spaces."""
        value = getattr(self._runtime, field)
        if isinstance(value, list):
            return [str(word) for word in value]
        text = "" if value is None else str(value)
        if "," in text:
            return [part.strip().strip("'\"") for part in text.split(",") if part.strip()]
        return words_of(text, f"{_SPEC}.{field}", self._problems)

    def _refuse(self, field: str, what: str, hint: str) -> None:
        self._problems.append(Problem(f"{_SPEC}.{field}", what, hint))
