"""ADS: `kind: distributed`, a cluster and the program that is trained on it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_words import environment, local_code, python_path, write_back
from muster.spec.formats.notes import Notes

_FRAMEWORKS = ("dask", "ray", "horovod", "pytorch", "tensorflow")
#: The options that take startOptions: on the main node, on the others.
_START_OPTIONS = {"dask": ("scheduler_args", "worker_args"), "ray": ("head_args", "worker_args")}
#: ADS: what its synchronisation goes by, and what it copies unless told otherwise.
_SYNC = ("SYNC_ARTIFACTS", "SYNC_SLEEP", "WORKSPACE", "WORKSPACE_PREFIX", "OCI__SYNC_DIR")
_SYNCED = "/opt/ml"
_PROFILE = ("PROFILE", "PROFILE_CMD")


def distributed_job(
    spec: ads.DistributedSpec, folder: Path, notes: Notes, problems: list[Problem]
) -> dict[str, Any]:
    """The spec as data. problems: what cannot be honoured is added."""
    return _Reader(spec, folder, notes, problems).read()


class _Reader:
    def __init__(
        self, spec: ads.DistributedSpec, folder: Path, notes: Notes, problems: list[Problem]
    ) -> None:
        self._cluster = spec.cluster.spec
        self._runtime = spec.runtime
        self._spec = spec
        self._folder = folder
        self._notes = notes
        self._problems = problems
        self._framework = spec.cluster.kind.lower()
        self._shared = environment(self._cluster.config.env, spec.runtime.spec.env)

    def read(self) -> dict[str, Any]:
        if self._framework not in _FRAMEWORKS:
            hint = f"there are: {', '.join(_FRAMEWORKS)}"
            self._refuse("spec.cluster.kind", f"no cluster called {self._framework}", hint)
        if not self._cluster.ephemeral:
            text = "a cluster that stays runs no program"
            hint = f"`muster cluster up {self._framework}` starts one"
            self._refuse("spec.cluster.spec.ephemeral", text, hint)
        self._note_cluster()
        program = self._program()
        profiler = self._profiler()
        if profiler and "artifact" in program:
            text = "the profiler is put before a command, and this program is no command here"
            self._refuse("spec.runtime", text, "leave PROFILE out, or say command in a spec")
        return {
            "name": self._cluster.name or self._spec.infrastructure.spec.display_name,
            "framework": self._framework,
            "framework_options": self._options(),
            "node_groups": self._groups(),
            "env": {**self._plain(self._shared), **python_path(self._runtime.spec.python_path)},
            **program,
            **self._synced(),
        }

    def _note_cluster(self) -> None:
        if self._cluster.work_dir is not None:
            self._notes.add("workDir", "is not needed: nodes find each other without it")
        if self._cluster.image is not None:
            self._notes.add("image", "is not used: programs are those of this machine")
        if self._cluster.main.replicas > 1:
            self._notes.add("main.replicas", "is 1, as for ADS")
        if self._cluster.certificate is not None:
            self._notes.add("certificate", "is not read: Muster makes certificates for each run")

    # --- nodes

    def _groups(self) -> list[dict[str, Any]]:
        groups = [self._group("main", 1, self._cluster.main)]
        for name, role in (("workers", self._cluster.worker), ("ps", self._cluster.ps)):
            if role is not None and role.replicas:
                groups.append(self._group(name, role.replicas, role))
        return groups

    def _group(self, name: str, nodes: int, role: ads.RoleSpec) -> dict[str, Any]:
        return {"name": name, "nodes": nodes, "env": self._plain(environment(role.config.env))}

    def _plain(self, env: Mapping[str, str]) -> dict[str, str]:
        """Without what ADS's own programs read."""
        return {k: v for k, v in env.items() if k not in (*_SYNC, *_PROFILE)}

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        everybody = self._cluster.config.start_options
        main = self._cluster.main.config.start_options or everybody
        worker = self._cluster.worker
        others = (worker.config.start_options if worker else ()) or everybody
        names = _START_OPTIONS.get(self._framework)
        for place, given in enumerate((main, others)):
            words = [word for option in given for word in shlex.split(option)]
            if words and names is None:
                path = "spec.cluster.spec.config.startOptions"
                text = f"{self._framework} is started by Muster, without words of its own"
                self._refuse(path, text, "leave them out; docs/frameworks says what can be told")
            elif words and names is not None:
                options[names[place]] = words
        if self._cluster.certificate is not None:
            if self._framework == "dask":
                options = {name: _without_tls(words) for name, words in options.items()}
                options["tls"] = True
            else:
                text = f"{self._framework} does not encrypt its connections here"
                self._refuse("spec.cluster.spec.certificate", text, "leave it out")
        made = {name: words for name, words in options.items() if words}
        if self._framework == "dask" and worker is not None and worker.replicas:
            made["worker_on_main"] = False  # ADS: main is the scheduler and nothing else
        return made

    # --- the program

    def _program(self) -> dict[str, Any]:
        runtime = self._runtime.spec
        entry = runtime.entry_point
        if entry is None:
            self._refuse("spec.runtime.spec.entryPoint", "is missing", "name the program")
            return {}
        args = {"args": [*runtime.args, *runtime.kwargs]}
        if self._runtime.type == "git":
            return {**self._git(entry), **args}
        if self._runtime.type == "remote" or runtime.uri is not None:
            return self._remote(entry, [*runtime.args, *runtime.kwargs])
        path = "spec.runtime.spec.entryPoint"
        if self._shared.get("PROFILE") == "1":
            entry = str(self._folder / entry.removeprefix("/code/"))
            return {"command": [*self._profiler(), "python", entry], **args}
        return {**local_code(entry, self._folder, path, self._notes, self._problems), **args}

    def _git(self, entry: str) -> dict[str, Any]:
        runtime = self._runtime.spec
        if runtime.uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the repository is")
        git = {"url": runtime.uri, "branch": runtime.branch, "commit": runtime.commit}
        if runtime.code_dir is not None:
            self._notes.add("codeDir", "is not needed: the code is where the program starts")
        return {"git": {k: v for k, v in git.items() if v is not None}, "entrypoint": entry}

    def _remote(self, entry: str, args: Sequence[str]) -> dict[str, Any]:
        uri = self._runtime.spec.uri
        if uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the code is")
            return {}
        if "://" not in uri:
            return {"artifact": uri, "entrypoint": entry, "args": list(args)}
        mount = {"source": uri, "path": "/mnt/code", "read_only": True}
        command = [*self._profiler(), "python", f"/mnt/code/{entry}"]
        return {"mounts": [mount], "command": command, "args": list(args)}

    def _profiler(self) -> list[str]:
        """ADS: PROFILE=1 puts PROFILE_CMD before the program."""
        if self._shared.get("PROFILE") != "1":
            return []
        return shlex.split(self._shared.get("PROFILE_CMD", ""))

    def _synced(self) -> dict[str, Any]:
        """ADS: SYNC_ARTIFACTS=1 copies a folder to a bucket while the program runs."""
        if self._shared.get("SYNC_ARTIFACTS") != "1":
            return {}
        where = self._shared.get("WORKSPACE") or self._cluster.work_dir or ""
        if "://" not in where:
            text = f"WORKSPACE is no URL: {where!r}"
            self._refuse("spec.cluster.spec.config.env", text, "write oci://bucket@namespace, say")
            return {}
        prefix = self._shared.get("WORKSPACE_PREFIX", "").strip("/")
        uri = "/".join(filter(None, [where.rstrip("/"), prefix, "sync"]))
        return {"mounts": [write_back(uri, self._shared.get("OCI__SYNC_DIR", _SYNCED))]}

    def _refuse(self, path: str, what: str, hint: str) -> None:
        self._problems.append(Problem(path, what, hint))


def _without_tls(words: Sequence[str]) -> list[str]:
    """Without the options that name ADS's certificates: `--tls-key F`, `--tls-key=F`."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("--tls-"):
            skip = "=" not in word
        else:
            kept.append(word)
    return kept
