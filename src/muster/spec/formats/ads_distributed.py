"""ADS: `kind: distributed`, a cluster and the program that is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_words import (
    environment,
    local_code,
    python_path,
    words_of,
    write_back,
)
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount

_FRAMEWORKS = ("dask", "ray", "horovod", "pytorch", "tensorflow")
#: The options that take startOptions: on the main node, on the others.
_START_OPTIONS = {"dask": ("scheduler_args", "worker_args"), "ray": ("head_args", "worker_args")}
_ENV = "spec.cluster.spec.config.env"
#: ADS: what names the folder that is synchronised, to programs as well; where it is unless told.
_SYNC_DIR, _SYNCED = "OCI__SYNC_DIR", "/opt/ml"
#: ADS: what synchronisation and profiling go by; here they are of all nodes alike.
_OF_ALL = (
    *("SYNC_ARTIFACTS", "SYNC_SLEEP", "WORKSPACE", "WORKSPACE_PREFIX", _SYNC_DIR),
    *("PROFILE", "PROFILE_CMD"),
)


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
        self._check_roles()
        program, synced = self._program(), self._synced()
        mounts = [*program.pop("mounts", ()), *([synced] if synced else ())]
        told = {_SYNC_DIR: Mount(**synced).destination} if synced else {}
        return {
            "name": self._cluster.name or self._spec.infrastructure.spec.display_name,
            "framework": self._framework,
            "framework_options": self._options(),
            "node_groups": self._groups(),
            "env": {**self._shared, **told, **python_path(self._runtime.spec.python_path)},
            **program,
            **({"mounts": mounts} if mounts else {}),
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

    def _roles(self) -> dict[str, ads.RoleSpec]:
        """By what ADS calls them."""
        cluster = self._cluster
        roles = {"main": cluster.main, "worker": cluster.worker, "ps": cluster.ps}
        return {name: role for name, role in roles.items() if role is not None}

    def _check_roles(self) -> None:
        """What a role says and only the cluster can."""
        for name, role in self._roles().items():
            for place, variable in enumerate(role.config.env):
                if variable.name in _OF_ALL:
                    path = f"spec.cluster.spec.{name}.config.env[{place}].name"
                    text = f"{variable.name} is of all nodes alike here, not of one role"
                    self._refuse(path, text, f"say it in {_ENV}")

    # --- nodes

    def _groups(self) -> list[dict[str, Any]]:
        groups = [self._group("main", 1, self._cluster.main)]
        for name, role in (("workers", self._cluster.worker), ("ps", self._cluster.ps)):
            if role is not None and role.replicas:
                groups.append(self._group(name, role.replicas, role))
        return groups

    def _group(self, name: str, nodes: int, role: ads.RoleSpec) -> dict[str, Any]:
        return {"name": name, "nodes": nodes, "env": environment(role.config.env)}

    def _start_options(self) -> dict[str, Any]:
        said = {
            "config": self._cluster.config.start_options,
            **{f"{k}.config": role.config.start_options for k, role in self._roles().items()},
        }
        given = {
            where: self._words(f"spec.cluster.spec.{where}.startOptions", *options)
            for where, options in said.items()
        }
        names = _START_OPTIONS.get(self._framework)
        for where in given if names is None else ("ps.config",):
            if given.get(where):
                text = f"{self._framework} is started by Muster, without words of its own"
                if names is not None:
                    text = f"{self._framework} has no parameter servers that it could tell"
                hint = "leave them out; docs/frameworks says what can be told"
                self._refuse(f"spec.cluster.spec.{where}.startOptions", text, hint)
        roles = ("main.config", "worker.config")
        return {
            name: given.get(role) or given["config"]
            for name, role in zip(names or (), roles, strict=False)
        }

    def _options(self) -> dict[str, Any]:
        options = self._start_options()
        worker = self._cluster.worker
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
        if self._runtime.type == "git":
            code = self._git(entry)
        elif self._runtime.type == "remote" or runtime.uri is not None:
            code = self._remote(entry)
        else:
            path = "spec.runtime.spec.entryPoint"
            code = local_code(entry, self._folder, path, self._notes, self._problems)
        return {**self._profiled(code), "args": [*runtime.args, *runtime.kwargs]}

    def _git(self, entry: str) -> dict[str, Any]:
        runtime = self._runtime.spec
        if runtime.uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the repository is")
        git = {"url": runtime.uri, "branch": runtime.branch, "commit": runtime.commit}
        if runtime.code_dir is not None:
            self._notes.add("codeDir", "is not needed: the code is where the program starts")
        return {"git": {k: v for k, v in git.items() if v is not None}, "entrypoint": entry}

    def _remote(self, entry: str) -> dict[str, Any]:
        uri = self._runtime.spec.uri
        if uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the code is")
            return {}
        if "://" not in uri:
            return {"artifact": uri, "entrypoint": entry}
        mount = {"source": uri, "path": "/mnt/code", "read_only": True}
        return {"mounts": [mount], "command": ["python", f"/mnt/code/{entry}"]}

    def _profiled(self, code: dict[str, Any]) -> dict[str, Any]:
        """ADS: PROFILE=1 puts PROFILE_CMD before the program."""
        if self._shared.get("PROFILE") != "1":
            return code
        profiler = self._words(_ENV, self._shared.get("PROFILE_CMD", ""))
        if not profiler or not code:
            return code
        program = code.get("command") or ["python", code["entrypoint"]]
        kept = {name: value for name, value in code.items() if name != "entrypoint"}
        return {**kept, "command": [*profiler, *program]}

    def _synced(self) -> dict[str, Any] | None:
        """ADS: SYNC_ARTIFACTS=1 copies a folder to a bucket while the program runs."""
        if self._shared.get("SYNC_ARTIFACTS") != "1":
            return None
        if "SYNC_SLEEP" in self._shared:
            when = "at the end, and whenever a program appends to $MUSTER_CHECKPOINT"
            self._notes.add("SYNC_SLEEP", f"is not used: files are copied {when}")
        where = self._shared.get("WORKSPACE") or self._cluster.work_dir or ""
        if "://" not in where:
            text = f"WORKSPACE is no URL: {where!r}"
            self._refuse(_ENV, text, "write oci://bucket@namespace, say")
            return None
        prefix = self._shared.get("WORKSPACE_PREFIX", "").strip("/")
        uri = "/".join(filter(None, [where.rstrip("/"), prefix, "sync"]))
        return write_back(uri, self._shared.get(_SYNC_DIR, _SYNCED))

    def _words(self, path: str, *texts: str) -> list[str]:
        return [word for text in texts for word in words_of(text, path, self._problems)]

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
