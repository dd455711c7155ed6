"""ADS: `kind: job`, one program on one node, or PyTorch on several."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_shape import SHAPE, shape_of
from muster.spec.formats.ads_words import (
    environment,
    python_path,
    storage_mounts,
    variable_origins,
    words_of,
    write_back,
)
from muster.spec.formats.documents import is_placeholder
from muster.spec.formats.notes import Notes
from muster.spec.formats.shell_text import needs_shell, operator_in, split_text
from muster.spec.places import Origin
from muster.spec.source_paths import is_requirements_file

_SPEC = "spec.runtime.spec"
#: Launchers' options that say how many processes run; and torchrun's that say what Muster says, or
#: that mean nothing under it.
_ALL_PROCESSES = "--num-processes"  # Accelerate's, on all nodes together; the others are a node's
_PROCESSES = ("--nproc-per-node", _ALL_PROCESSES, "--num-gpus")
_NODES_OPTIONS = ("--nnodes", "--node-rank", "--master-addr", "--master-port", "--max-restarts")
_RDZV = "--rdzv"
_LAUNCHERS = frozenset(("torchrun", "deepspeed", "accelerate"))
_LAUNCHER = re.compile(r"(?:torchrun|deepspeed|accelerate launch)(?!\S)")
#: The fields that only some types of runtime have.
_FIELDS = {
    "script": ("script_path_uri", "entrypoint"),
    "python": ("script_path_uri", "entrypoint", "entry_function", "working_dir"),
    "notebook": ("notebook_path_uri", "source", "entrypoint", "exclude_tags"),
    "gitPython": ("url", "branch", "commit", "entrypoint", "entry_function", "working_dir"),
    "container": ("image", "cmd", "entrypoint", "command", "script_path_uri"),
    "pyTorchDistributed": (
        *("source", "script_path_uri", "git", "command", "dependencies", "working_dir"),
    ),
}
#: Where code is that is fetched when the run begins.
_CODE = "/mnt/code"
#: Types that begin where `workingDir` says, which is also where Python looks for modules.
_AT_HOME = ("python", "gitPython", "pyTorchDistributed")


def single_job(
    spec: ads.JobSpec,
    folder: Path,
    notes: Notes,
    problems: list[Problem],
    origins: dict[str, Origin],
) -> dict[str, Any]:
    """The spec as data. problems: what cannot be honoured is added; origins: where what became
    fields of the spec stands."""
    return _Reader(spec, folder, notes, problems, origins).read()


class _Reader:
    def __init__(
        self,
        spec: ads.JobSpec,
        folder: Path,
        notes: Notes,
        problems: list[Problem],
        origins: dict[str, Origin],
    ) -> None:
        self._spec = spec
        self._runtime = spec.runtime.spec
        self._folder = folder
        self._notes = notes
        self._problems = problems
        self._origins = origins

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
        self._note_others()
        self._note_origins()
        working_dir = self._working_dir()
        made = {
            "name": self._spec.name or self._spec.infrastructure.spec.display_name,
            "tags": dict(runtime.freeform_tags),
            "max_runtime": None if minutes is None else 60 * minutes,
            "args": list(runtime.args),
            "env": {**environment(runtime.env), **python_path(self._python_path())},
            "mounts": self._mounts(),
            "shape": shape_of(self._spec.infrastructure.spec, self._notes, self._problems),
            **by_type[self._spec.runtime.type](),
        }
        if working_dir is None:
            made["nodes"] = runtime.replicas
        else:
            group = {"name": "workers", "nodes": runtime.replicas, "working_dir": working_dir}
            made["node_groups"] = [group]
        return {name: value for name, value in made.items() if value not in (None, [], {})}

    def _note_others(self) -> None:
        """What other types of runtime have: ADS passes over it."""
        kind = self._spec.runtime.type
        every = {name for names in _FIELDS.values() for name in names}
        for info in fields(ads.RuntimeSpec):
            if info.name in every - {*_FIELDS[kind]} and _is_said(info, self._runtime):
                why = f"is not used: a runtime of type {kind} has no such field"
                self._notes.add(info.encode_name, why)

    def _note_origins(self) -> None:
        """Of fields that are here by another name; mounts say theirs themselves."""
        runtime = self._runtime
        shown = "spec.name" if self._spec.name else "spec.infrastructure.spec.displayName"
        usual = "url" if self._spec.runtime.type == "gitPython" else "scriptPathURI"
        code = next((name for name, uri in self._sources() if uri is not None), usual)
        command = next((n for n in ("cmd", "entrypoint") if getattr(runtime, n)), "command")
        named = {
            "name": shown,
            **dict.fromkeys(("", "artifact"), f"{_SPEC}.{code}"),
            **dict.fromkeys(("command", "processes_per_node"), f"{_SPEC}.{command}"),
            "entrypoint": f"{_SPEC}.entrypoint",
            "args": f"{_SPEC}.args",
            "env.PYTHONPATH": f"{_SPEC}.pythonPath",
            "tags": f"{_SPEC}.freeformTags",
            "shape": SHAPE,
            "max_runtime": f"{_SPEC}.maximumRuntimeInMinutes",
            "requirements": f"{_SPEC}.dependencies",
            "git": f"{_SPEC}.git" if runtime.git is not None else _SPEC,
            "nodes": f"{_SPEC}.replicas",
            "working_dir": f"{_SPEC}.workingDir",
        }
        self._origins |= {name: Origin(path) for name, path in named.items()}
        base = named["git"]
        self._origins |= {f"git.{n}": Origin(f"{base}.{n}") for n in ("url", "branch", "commit")}
        self._origins |= variable_origins(f"{_SPEC}.env", runtime.env)

    def _sources(self) -> list[tuple[str, str | None]]:
        """The fields that say where code is, with what they say."""
        runtime = self._runtime
        return [
            ("scriptPathURI", runtime.script_path_uri),
            ("notebookPathURI", runtime.notebook_path_uri),
            ("source", runtime.source),
        ]

    # --- one runtime each

    def _script(self) -> dict[str, Any]:
        return self._code(self._runtime.script_path_uri, "scriptPathURI", self._entry())

    def _python(self) -> dict[str, Any]:
        if self._runtime.entry_function is not None:
            text = "Muster runs programs, not single functions of them"
            hint = "call it under `if __name__ == '__main__'`; or see @muster.job in docs/python.md"
            self._refuse("entryFunction", text, hint)
        return self._script()

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
        entry = self._entry()
        if entry is None:
            self._refuse("entrypoint", "is missing", "name the program in the repository")
        if runtime.url is None:
            self._refuse("url", "is missing", "say where the repository is")
            return {}
        git = {"url": runtime.url, "branch": runtime.branch, "commit": runtime.commit}
        return {"git": {k: v for k, v in git.items() if v is not None}, "entrypoint": entry}

    def _container(self) -> dict[str, Any]:
        runtime = self._runtime
        self._notes.add("image", "is not used: programs are those of this machine")
        words = self._words("entrypoint")
        # what a shell is given is one text
        script = words[-1:] == ["-c"] and isinstance(runtime.cmd, str)
        words += [str(runtime.cmd)] if script else self._words("cmd")
        words = words or self._words("command")
        if not (runtime.entrypoint or runtime.cmd or runtime.command):
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
        if not runtime.command:
            self._refuse("command", "is missing", "write torchrun train.py, say")
            return made
        return {**made, **self._launched(self._command_text(runtime.command))}

    def _command_text(self, command: Any) -> str:
        """ADS gives the text to a shell. In a list a shell fills in variables only."""
        if isinstance(command, list):
            return " ".join(_quoted(str(word)) for word in command)
        return str(command).replace("\\\n", "").strip()

    def _launched(self, text: str) -> dict[str, Any]:
        """A launcher's command without the launcher, as Muster starts the ranks itself; any other
        as it is."""
        try:
            words = split_text(text)
        except ValueError as error:
            self._refuse("command", f"cannot be split into words: {text!r}: {error}", "close it")
            return {}
        found = _LAUNCHER.match(" ".join(word for word, _ in words[:2]))
        if found is None:
            return {"command": self._as_it_stands(text, [word for word, _ in words])}
        launcher = found.group()
        operator = operator_in(text)
        if operator is not None:
            what = f"{launcher} is not run here, so no shell is there for {operator!r}"
            self._refuse("command", what, "put what else is to be done into the program")
            return {}
        self._notes.add(launcher, "is not run: Muster starts the ranks as it would")
        return self._without(launcher, words[len(launcher.split()) :])

    def _without(self, launcher: str, rest: list[tuple[str, str]]) -> dict[str, Any]:
        """rest: the words after the launcher, each with the text from there on."""
        made: dict[str, Any] = {}
        while rest and rest[0][0].startswith("-"):
            option, equals, value = rest.pop(0)[0].replace("_", "-").partition("=")
            if not equals and rest and not rest[0][0].startswith("-"):
                value = rest.pop(0)[0]
            if option in _PROCESSES:
                made |= self._processes(launcher, option, value)
            elif option not in _NODES_OPTIONS and not option.startswith(_RDZV):
                what = f"{launcher} {option} is not known here"
                self._refuse("command", what, "leave it out")
        text = f"python {rest[0][1] if rest else ''}"
        if needs_shell(text):
            return {**made, "command": self._by_shell(f"exec {text}")}
        return {**made, "command": shlex.split(text)}

    def _as_it_stands(self, text: str, words: list[str]) -> list[str]:
        if not needs_shell(text):
            return words
        for launcher in _LAUNCHERS.intersection(words):
            what = "is run on each node as it stands: only a command that begins with it"
            self._notes.add(launcher, f"{what} has Muster start the ranks")
        return self._by_shell(text)

    def _by_shell(self, text: str) -> list[str]:
        if self._runtime.args:
            what = "cannot be added to a command that a shell runs"
            self._refuse("args", what, "write them into the command")
        return ["sh", "-c", text]

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
        if "://" in uri.removeprefix("file://") and self._spec.runtime.type in ("script", "python"):
            return self._remote(uri, entry)
        made: dict[str, Any] = {"artifact": self._path(uri, field)}
        return made if entry is None else {**made, "entrypoint": self._inside(entry, made)}

    def _remote(self, uri: str, entry: str | None) -> dict[str, Any]:
        """Code that is fetched when the run begins: a file, or a folder with the program in it."""
        program = f"{_CODE}/{entry or uri.rpartition('/')[2]}"
        runner = "bash" if program.endswith(".sh") else "python"
        mount = {"source": uri, "path": _CODE, "read_only": True}
        mounts = [*self._mounts(), mount]
        self._origins[f"mounts[{len(mounts) - 1}]"] = Origin(f"{_SPEC}.scriptPathURI")
        return {"mounts": mounts, "command": [runner, program]}

    def _inside(self, entry: str, code: Mapping[str, Any]) -> str:
        """The program in the code. ADS: it is named from where it starts, which is beside the
        folder that the code is in, or in `workingDir`."""
        if self._spec.runtime.type == "python":
            entry = posixpath.normpath(posixpath.join(self._runtime.working_dir or ".", entry))
        folder = self._folder / str(code["artifact"])
        first, _, rest = entry.partition("/")
        if rest and first == folder.name and not os.path.isfile(folder / entry):
            return rest
        return entry

    def _path(self, uri: str, field: str) -> str:
        path = uri.removeprefix("file://")
        if "://" in path:
            text = f"{uri} is not at hand"
            self._refuse(field, text, "fetch it first, or use git; or a mount and a command")
        elif not os.path.exists(self._folder / path):
            self._refuse(field, f"there is no {self._folder / path}", "check the path")
        return path

    def _working_dir(self) -> str | None:
        """Where the program starts, from the code on; None: there."""
        if self._spec.runtime.type not in _AT_HOME:
            return None
        where = posixpath.normpath(self._runtime.working_dir or ".")
        source = self._runtime.script_path_uri or self._runtime.source
        folder = self._folder / (source or "").removeprefix("file://")
        first, _, rest = where.partition("/")
        if (
            source
            and first == folder.name
            and os.path.isdir(folder)
            and not os.path.isdir(folder / where)
        ):
            where = rest or "."  # ADS: it begins beside the folder that the code is in
        return None if where == "." else where

    def _python_path(self) -> list[str]:
        """ADS: modules are looked for where the program starts, too."""
        paths = list(self._runtime.python_path)
        entry = str(self._runtime.entrypoint or "")
        nested = "/" in entry or self._runtime.working_dir not in (None, "", ".")
        return [".", *paths] if nested and self._spec.runtime.type in _AT_HOME else paths

    def _mounts(self) -> list[dict[str, Any]]:
        runtime = self._runtime
        listed = self._spec.infrastructure.spec.storage_mount
        made = storage_mounts(listed, self._problems)
        for number, (uri, place) in enumerate(runtime.inputs.items()):
            path = f"inputs.{uri}"
            if is_placeholder(uri):
                self._refuse(path, f"{uri} was not filled in", "write what belongs there")
            made[f"{_SPEC}.{path}"] = self._input(uri, place, number)
        if runtime.output_uri is not None:
            made[f"{_SPEC}.outputUri"] = self._output(runtime.output_uri)
        self._origins |= {f"mounts[{n}]": Origin(path) for n, path in enumerate(made)}
        return [*made.values()]

    def _input(self, uri: str, place: str, number: int) -> dict[str, Any]:
        """ADS: a place that does not begin with a slash is where the program starts."""
        if posixpath.isabs(place):
            return {"source": uri, "path": place, "read_only": True}
        path = "inputs" if number == 0 else f"inputs-{number}"
        return {"source": uri, "path": path, "link": place, "read_only": True}

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
        """ADS: a folder that does not begin with a slash is where the program starts."""
        place = self._runtime.output_dir or "/mnt/outputs"
        if is_placeholder(uri):
            self._refuse("outputUri", f"{uri} was not filled in", "write what belongs there")
        if "$" in uri:
            self._notes.add("outputUri", f"is taken as it is, without variables filled in: {uri}")
        if posixpath.isabs(place):
            return write_back(uri, place)
        if posixpath.normpath(place) in (".", ".."):
            text = f"{place} holds the code, too: what the program writes cannot be told from it"
            self._refuse("outputDir", text, "name a folder that the program writes to")
        return {**write_back(uri, "outputs"), "link": place}

    def _words(self, field: str) -> list[str]:
        """ADS: a list, or text split at commas outside of quotes; without commas at spaces."""
        value = getattr(self._runtime, field)
        if isinstance(value, list):
            return [str(word) for word in value]
        text = "" if value is None else str(value)
        if field == "command":
            return words_of(text, f"{_SPEC}.{field}", self._problems)
        if text.lstrip().startswith("["):
            return self._listed(field, text)
        if "," in text:
            return [part.strip().strip("'\"") for part in text.split(",") if part.strip()]
        return words_of(text, f"{_SPEC}.{field}", self._problems)

    def _listed(self, field: str, text: str) -> list[str]:
        """A list in a text, as Dockerfiles have it."""
        try:
            return convert(json.loads(text), list[str])
        except ValueError as error:
            hint = 'write ["python", "train.py"], or a list'
            self._refuse(field, f"{text!r} is no list of words: {error}", hint)
            return []

    def _refuse(self, field: str, what: str, hint: str) -> None:
        self._problems.append(Problem(f"{_SPEC}.{field}", what, hint))


def _is_said(info: FieldInfo, spec: ads.RuntimeSpec) -> bool:
    default = info.default_factory() if info.default is NODEFAULT else info.default
    return bool(getattr(spec, info.name) != default)


def _quoted(word: str) -> str:
    return _double_quoted(word) if "$" in word else shlex.quote(word)


def _double_quoted(word: str) -> str:
    return '"' + re.sub(r'(["`\\])', r"\\\1", word) + '"'
