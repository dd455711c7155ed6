"""ADS: `kind: job`, one program on one node, or PyTorch on several."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, convert
from msgspec.structs import FieldInfo, fields

from muster.spec.formats.ads import model as ads
from muster.spec.formats.ads.code import git_source, python_path
from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.environment import environment, variable_origins
from muster.spec.formats.ads.launchers import LauncherCommand
from muster.spec.formats.ads.mounts import job_mounts
from muster.spec.formats.ads.shape import SHAPE, shape_of
from muster.spec.paths import is_requirements_file
from muster.spec.problem_places import Origin

_SPEC = "spec.runtime.spec"
#: Runtime type -> fields that only some types have.
_FIELDS = {
    "script": ("script_path_uri", "entrypoint"),
    "python": ("script_path_uri", "entrypoint", "entry_function", "working_dir"),
    "notebook": ("notebook_path_uri", "source", "entrypoint", "exclude_tags"),
    "gitPython": ("url", "branch", "commit", "entrypoint", "entry_function", "working_dir"),
    "container": ("image", "cmd", "entrypoint", "command", "script_path_uri"),
    "pyTorchDistributed": (
        "source",
        "script_path_uri",
        "git",
        "command",
        "dependencies",
        "working_dir",
    ),
}
#: The mount of code that is fetched when the run starts.
_CODE = "/mnt/code"
#: Types whose programs start in `workingDir`, which is also on Python's module path.
_WITH_WORKING_DIR = ("python", "gitPython", "pyTorchDistributed")


def single_job(spec: ads.JobSpec, conversion: Conversion) -> dict[str, Any]:
    """The spec as plain data."""
    return _Reader(spec, conversion).read()


class _Reader:
    def __init__(self, spec: ads.JobSpec, conversion: Conversion) -> None:
        self._spec = spec
        self._type = spec.runtime.type
        self._runtime = spec.runtime.spec
        self._conversion = conversion
        self._folder = conversion.folder
        self._notes = conversion.notes
        self._origins = conversion.origins

    def read(self) -> dict[str, Any]:
        runtime, infrastructure = self._runtime, self._spec.infrastructure.spec
        by_type = {
            "script": self._script,
            "python": self._python,
            "notebook": self._notebook,
            "gitPython": self._git,
            "container": self._container,
            "pyTorchDistributed": self._pytorch,
        }
        minutes = runtime.maximum_runtime_in_minutes
        self._note_fields_of_other_types()
        self._note_origins()
        working_dir = self._working_dir()
        made = {
            "name": self._spec.name or infrastructure.display_name,
            "tags": dict(runtime.freeform_tags),
            "max_runtime": None if minutes is None else 60 * minutes,
            "args": list(runtime.args),
            "env": {**environment(runtime.env), **python_path(self._python_path())},
            "mounts": self._mounts(),
            "shape": shape_of(infrastructure, self._conversion),
            **by_type[self._type](),
        }
        if working_dir is None:
            made["nodes"] = runtime.replicas
        else:
            group = {"name": "workers", "nodes": runtime.replicas, "working_dir": working_dir}
            made["node_groups"] = [group]
        return {name: value for name, value in made.items() if value not in (None, [], {})}

    def _note_fields_of_other_types(self) -> None:
        """ADS ignores the fields of other types of runtime."""
        every = {name for names in _FIELDS.values() for name in names}
        for info in fields(ads.RuntimeSpec):
            if info.name in every - {*_FIELDS[self._type]} and _is_given(info, self._runtime):
                why = f"is not used: a runtime of type {self._type} has no such field"
                self._notes.add(info.encode_name, why)

    def _note_origins(self) -> None:
        """Record which YAML field each spec field came from, where the names differ."""
        runtime = self._runtime
        shown = "spec.name" if self._spec.name else "spec.infrastructure.spec.displayName"
        usual = "url" if self._type == "gitPython" else "scriptPathURI"
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
        """The fields that locate the code, with their values."""
        runtime = self._runtime
        return [
            ("scriptPathURI", runtime.script_path_uri),
            ("notebookPathURI", runtime.notebook_path_uri),
            ("source", runtime.source),
        ]

    # --- one method for each type of runtime

    def _script(self) -> dict[str, Any]:
        return self._code(self._runtime.script_path_uri, "scriptPathURI", self._entry())

    def _python(self) -> dict[str, Any]:
        if self._runtime.entry_function is not None:
            text = "Muster runs programs, not single functions of them"
            hint = (
                "call it under `if __name__ == '__main__'`; "
                "or see @muster.job in https://muster-jobs.github.io/muster/reference/python/"
            )
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
            self._refuse("url", "is missing", "name the repository")
            return {}
        git = git_source(runtime.url, runtime.branch, runtime.commit)
        return {"git": git, "entrypoint": entry}

    def _container(self) -> dict[str, Any]:
        runtime = self._runtime
        self._notes.add(
            "image", "is for engines that have images; elsewhere, programs are those of the machine"
        )
        words = self._words("entrypoint")
        # a shell takes its script as one word
        script = words[-1:] == ["-c"] and isinstance(runtime.cmd, str)
        words += [str(runtime.cmd)] if script else self._words("cmd")
        words = words or self._words("command")
        code = {}
        if runtime.script_path_uri is not None:
            code = {"artifact": self._path(runtime.script_path_uri, "scriptPathURI")}
        return {"command": words or None, "image": runtime.image, **code}

    def _pytorch(self) -> dict[str, Any]:
        runtime = self._runtime
        source = runtime.source or runtime.script_path_uri
        made: dict[str, Any] = {"framework": "pytorch", **self._requirements(source)}
        if runtime.git is not None:
            git = runtime.git
            made["git"] = git_source(git.url, git.branch, git.commit)
        else:
            made |= self._code(source, "source", None)
        if not runtime.command:
            self._refuse("command", "is missing", "write torchrun train.py, say")
            return made
        launcher = LauncherCommand(
            runtime.replicas,
            has_args=bool(runtime.args),
            notes=self._notes,
            refuse=self._refuse,
        )
        return {**made, **launcher.convert(runtime.command)}

    # --- the code

    def _entry(self) -> str | None:
        words = self._words("entrypoint")
        return words[0] if words else None

    def _code(self, uri: str | None, field: str, entry: str | None) -> dict[str, Any]:
        if uri is None:
            self._refuse(field, "is missing", "name the code's file or folder")
            return {}
        if "://" in uri.removeprefix("file://") and self._type in ("script", "python"):
            return self._remote(uri, entry)
        made: dict[str, Any] = {"artifact": self._path(uri, field)}
        return made if entry is None else {**made, "entrypoint": self._inside(entry, made)}

    def _remote(self, uri: str, entry: str | None) -> dict[str, Any]:
        """Code that is fetched when the run starts: a file, or a folder that holds the program."""
        program = f"{_CODE}/{entry or uri.rpartition('/')[2]}"
        runner = "bash" if program.endswith(".sh") else "python"
        mount = {"source": uri, "path": _CODE, "read_only": True}
        mounts = [*self._mounts(), mount]
        self._origins[f"mounts[{len(mounts) - 1}]"] = Origin(f"{_SPEC}.scriptPathURI")
        return {"mounts": mounts, "command": [runner, program]}

    def _inside(self, entry: str, code: Mapping[str, Any]) -> str:
        """The program's path in the code. ADS: the given path starts next to the code's folder, or
        in `workingDir`."""
        if self._type == "python":
            entry = posixpath.normpath(posixpath.join(self._runtime.working_dir or ".", entry))
        folder = self._folder / str(code["artifact"])
        first, _, rest = entry.partition("/")
        if rest and first == folder.name and not os.path.isfile(folder / entry):
            return rest
        return entry

    def _path(self, uri: str, field: str) -> str:
        path = uri.removeprefix("file://")
        if "://" in path:
            text = f"{uri} is not on this machine"
            self._refuse(field, text, "fetch it first, or use git; or a mount and a command")
        elif not os.path.exists(self._folder / path):
            self._refuse(field, f"{self._folder / path} not found", "check the path")
        return path

    def _working_dir(self) -> str | None:
        """The folder in which the program starts, relative to the code; None for the code's own."""
        if self._type not in _WITH_WORKING_DIR:
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
            where = rest or "."  # ADS: the path starts in the parent of the code's folder
        return None if where == "." else where

    def _python_path(self) -> list[str]:
        """The module path. ADS also puts the folder in which the program starts on it."""
        paths = list(self._runtime.python_path)
        entry = str(self._runtime.entrypoint or "")
        nested = "/" in entry or self._runtime.working_dir not in (None, "", ".")
        return [".", *paths] if nested and self._type in _WITH_WORKING_DIR else paths

    def _mounts(self) -> list[dict[str, Any]]:
        storage = self._spec.infrastructure.spec.storage_mount
        return job_mounts(storage, self._runtime, _SPEC, self._conversion)

    # --- requirements

    def _requirements(self, source: str | None) -> dict[str, Any]:
        """ADS installs both packages and files."""
        dependencies = self._runtime.dependencies
        lines = []
        if dependencies.pip_requirements is not None:
            lines.append(self._requirements_file(dependencies.pip_requirements, source))
        if dependencies.pip_packages is not None:
            path = f"{_SPEC}.dependencies.pipPackages"
            lines += self._conversion.words(path, dependencies.pip_packages)
        return {"requirements": lines} if lines else {}

    def _requirements_file(self, name: str, source: str | None) -> str:
        field = "dependencies.pipRequirements"
        if not is_requirements_file(name):
            self._refuse(field, f"{name} is not a .txt file", "give it a name that ends in .txt")
            return name
        source = (source or "").removeprefix("file://")
        if self._runtime.git is not None or not source or "://" in source:
            return name  # a file of the repository; or the code is missing, which is reported
        code = self._folder / source
        file = (code if os.path.isdir(code) else code.parent) / name
        if not os.path.isfile(file):
            hint = "put it into the folder of the code"
            self._refuse(field, f"{file} not found", hint)
        return str(file)

    # --- values

    def _words(self, field: str) -> list[str]:
        """ADS: a list, or text split at commas outside of quotes; without commas at spaces."""
        value = getattr(self._runtime, field)
        if isinstance(value, list):
            return [str(word) for word in value]
        text = "" if value is None else str(value)
        if field == "command":
            return self._conversion.words(f"{_SPEC}.{field}", text)
        if text.lstrip().startswith("["):
            return self._json_list(field, text)
        if "," in text:
            return [part.strip().strip("'\"") for part in text.split(",") if part.strip()]
        return self._conversion.words(f"{_SPEC}.{field}", text)

    def _json_list(self, field: str, text: str) -> list[str]:
        """A JSON list as text, as in Dockerfiles."""
        try:
            return convert(json.loads(text), list[str])
        except ValueError as error:
            hint = 'write ["python", "train.py"], or a list'
            self._refuse(field, f"{text!r} is not a list of words: {error}", hint)
            return []

    def _refuse(self, field: str, what: str, hint: str) -> None:
        self._conversion.refuse(f"{_SPEC}.{field}", what, hint)


def _is_given(info: FieldInfo, spec: ads.RuntimeSpec) -> bool:
    default = info.default_factory() if info.default is NODEFAULT else info.default
    return bool(getattr(spec, info.name) != default)
