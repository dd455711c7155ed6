"""ADS: `kind: distributed`, a cluster and the program that is trained on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_variables import (
    SYNC_DIR,
    SYNCED,
    cluster_variables,
    role_variables,
    sync_url,
)
from muster.spec.formats.ads_words import (
    CodePaths,
    environment,
    local_code,
    python_path,
    storage_mounts,
    words_of,
    write_back,
)
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount
from muster.spec.quantities import parse_duration
from muster.spec.wording import Refused

_FRAMEWORKS = ("dask", "ray", "horovod", "pytorch", "tensorflow")
#: Those whose clusters stay for clients that connect to them.
_STAYING = ("dask", "ray")
#: What says how long one that stays does; the first that is set counts.
_LIFE_SPANS = ("OCI__TTL", "TTL", "OCI__LIFE_SPAN")
#: A cluster that stays: how many workers it may grow to, and how often it is started again.
_ROOM, _RESTARTS = 16, 10
#: Where programs for ADS expect Dask's scheduler, if they do not look at SCHEDULER_PORT.
_DASK_PORT = {"DASK_SCHEDULER_PORT": "8786"}
#: The options that take startOptions: on the main node, on the others.
_START_OPTIONS = {"dask": ("scheduler_args", "worker_args"), "ray": ("head_args", "worker_args")}
_ENV = "spec.cluster.spec.config.env"
#: ADS: what synchronisation and profiling go by; here they are of all nodes alike.
_OF_ALL = (
    *("SYNC_ARTIFACTS", "SYNC_SLEEP", "WORKSPACE", "WORKSPACE_PREFIX", SYNC_DIR),
    *("PROFILE", "PROFILE_CMD", *_LIFE_SPANS),
)
#: Variables that ADS's own launchers read -> why they are not read here.
_NOT_READ = {
    "WORKER_PORT": "ports are chosen free",
    "HOROVOD_ARGS": "horovodrun is not run",
    "ENABLE_TIMELINE": "say HOROVOD_TIMELINE for Horovod's own",
    "POST_PROCESSING_WAIT": "nothing is waited for",
}


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
        self._code = CodePaths(spec.runtime.spec.code_dir, notes)
        self._shared = self._code.inside_values(
            environment(self._cluster.config.env, spec.runtime.spec.env)
        )

    def read(self) -> dict[str, Any]:
        if self._framework not in _FRAMEWORKS:
            hint = f"there are: {', '.join(_FRAMEWORKS)}"
            self._refuse("spec.cluster.kind", f"no cluster called {self._framework}", hint)
        self._note_cluster()
        self._check_roles()
        program = self._program() if self._cluster.ephemeral else self._stay()
        synced = self._synced()
        stored = self._spec.infrastructure.spec.storage_mount
        mounts = [
            *program.pop("mounts", ()),
            *storage_mounts(stored, self._problems),
            *([synced] if synced else ()),
        ]
        told = {SYNC_DIR: Mount(**synced).destination} if synced else {}
        paths = self._code.inside(*self._runtime.spec.python_path)
        return {
            "name": self._cluster.name or self._spec.infrastructure.spec.display_name,
            "framework": self._framework,
            "framework_options": self._options(),
            "node_groups": self._groups(),
            "env": {**self._variables(), **self._shared, **told, **python_path(paths)},
            **self._processes(),
            **program,
            **({"mounts": mounts} if mounts else {}),
        }

    def _variables(self) -> dict[str, str]:
        runtime, roles = self._runtime.spec, self._roles()
        made = cluster_variables(
            framework=self._framework,
            workers=roles["worker"].replicas if "worker" in roles else 0,
            servers=roles["ps"].replicas if "ps" in roles else 0,
            ephemeral=self._cluster.ephemeral,
            entry=runtime.entry_point,
            args=[*runtime.args, *runtime.kwargs],
            work_dir=self._cluster.work_dir,
        )
        return made | (_DASK_PORT if self._framework == "dask" else {})

    def _processes(self) -> dict[str, int]:
        """ADS: nprocs is how many workers Dask has on a node."""
        number = self._number("nprocs")
        return {} if number is None else {"processes_per_node": number}

    def _number(self, name: str) -> int | None:
        text = self._of_workers(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            self._refuse(_ENV, f"{name} must be a whole number from 1, not {text!r}", "write 1")
            return None
        return int(text)

    def _of_workers(self, name: str) -> str | None:
        """What a variable says that Dask's workers are started by."""
        if self._framework != "dask":
            return None
        worker = self._cluster.worker
        own = environment(worker.config.env) if worker is not None else {}
        return own.get(name, self._shared.get(name))

    def _note_cluster(self) -> None:
        if self._cluster.work_dir is not None:
            self._notes.add("workDir", "is not needed: nodes find each other without it")
        if self._cluster.image is not None:
            self._notes.add("image", "is not used: programs are those of this machine")
        if self._cluster.main.replicas > 1:
            self._notes.add("main.replicas", "is 1, as for ADS")
        if self._cluster.certificate is not None:
            self._notes.add("certificate", "is not read: Muster makes certificates for each run")
        for name, why in _NOT_READ.items():
            if name in self._shared:
                self._notes.add(name, f"is a variable like any other: {why}")

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
        env = self._code.inside_values(environment(role.config.env))
        made: dict[str, Any] = {"name": name, "env": {**role_variables(name), **env}}
        if name != "ps":
            made["node_env"] = {"RANK": "${rank}"}  # ADS: the main node, then the workers
        if self._cluster.ephemeral or name == "main":
            return {**made, "nodes": nodes}
        # so that it can grow and shrink
        return {**made, "replicas": nodes, "max_replicas": max(4 * nodes, _ROOM)}

    def _start_options(self) -> dict[str, Any]:
        said = {
            "config": self._cluster.config.start_options,
            **{f"{k}.config": role.config.start_options for k, role in self._roles().items()},
        }
        given = {
            where: self._code.inside(
                *self._words(f"spec.cluster.spec.{where}.startOptions", *options)
            )
            for where, options in said.items()
        }
        names = _START_OPTIONS.get(self._framework)
        for where in given if names is None else ("ps.config",):
            if given.get(where):
                why = f"are not used: {self._framework} is started without words of its own"
                if names is not None:
                    why = f"are not used: {self._framework} has no parameter servers"
                self._notes.add(f"startOptions of {where}", why)
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
        if (threads := self._number("nthread")) is not None:
            made["threads"] = threads
        if (seconds := self._of_workers("death_timeout")) is not None:
            made["worker_args"] = ["--death-timeout", seconds, *made.get("worker_args", ())]
        if self._framework == "ray" and not self._cluster.ephemeral:
            made["clients"] = True
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
            code = local_code(self._code.inside(entry)[0], self._folder, path, self._problems)
        args = self._code.inside(*runtime.args, *runtime.kwargs)
        return {**self._profiled(code), "args": args}

    def _stay(self) -> dict[str, Any]:
        """A cluster that stays, as `muster cluster up` starts it."""
        if self._framework not in _STAYING:
            text = f"no client could connect to a {self._framework} cluster that stays"
            hint = f"leave it out; or let the cluster be one of {' and '.join(_STAYING)}"
            self._refuse("spec.cluster.spec.ephemeral", text, hint)
        if self._runtime.spec.entry_point is not None:
            self._notes.add("entryPoint", "is not run: a cluster that stays has no program")
        made: dict[str, Any] = {
            "command": ["python", "-m", "muster.node.keeper"],
            "failure": {"max_restarts": _RESTARTS},
            "tags": {"muster-cluster": self._framework},
        }
        name = next((name for name in _LIFE_SPANS if self._shared.get(name)), None)
        if name is None:
            why = "is not set: the cluster stays for 30 days, unless `muster cluster down` ends it"
            self._notes.add(_LIFE_SPANS[0], why)
            return made
        try:
            seconds = parse_duration(self._shared[name])
        except Refused as error:
            self._refuse(_ENV, f"{name}: {error.message}", error.hint or "write 2h")
            return made
        return {**made, "command": [*made["command"], "--ttl", f"{seconds:g}"]}

    def _git(self, entry: str) -> dict[str, Any]:
        runtime = self._runtime.spec
        if runtime.uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the repository is")
        git = {"url": runtime.uri, "branch": runtime.branch, "commit": runtime.commit}
        if runtime.code_dir is not None:
            self._notes.add("codeDir", "is not needed: the code is where the program starts")
        (inside,) = self._code.inside(entry)
        return {"git": {k: v for k, v in git.items() if v is not None}, "entrypoint": inside}

    def _remote(self, entry: str) -> dict[str, Any]:
        uri = self._runtime.spec.uri
        if uri is None:
            self._refuse("spec.runtime.spec.uri", "is missing", "say where the code is")
            return {}
        (inside,) = self._code.inside(entry)
        # ADS: below the folder of the code there is the one that was fetched
        inside = inside.removeprefix(uri.rstrip("/").rpartition("/")[2] + "/")
        if "://" not in uri:
            return {"artifact": uri, "entrypoint": inside}
        mount = {"source": uri, "path": "/mnt/code", "read_only": True}
        return {"mounts": [mount], "command": ["python", f"/mnt/code/{inside}"]}

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
        """ADS: SYNC_ARTIFACTS=1 copies a folder to a bucket while the program runs. Without, the
        folder is there, and goes with the run."""
        told = self._shared
        if told.get("SYNC_ARTIFACTS") != "1":
            if SYNC_DIR in told:
                return None
            return {"source": "scratch:node/sync", "path": SYNCED}
        if "SYNC_SLEEP" in told:
            when = "at the end, and whenever a program appends to $MUSTER_CHECKPOINT"
            self._notes.add("SYNC_SLEEP", f"is not used: files are copied {when}")
        try:
            url = sync_url(
                told.get("WORKSPACE"), told.get("WORKSPACE_PREFIX"), self._cluster.work_dir
            )
        except ValueError as error:
            hint = "write oci://bucket@namespace, or a workDir of the same namespace"
            self._refuse(_ENV, str(error), hint)
            return None
        return write_back(url, told.get(SYNC_DIR, SYNCED))

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
