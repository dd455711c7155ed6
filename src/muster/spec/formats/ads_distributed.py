"""ADS: `kind: distributed`, a cluster and the program that is trained on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.errors import Problem
from muster.spec.formats import ads_model as ads
from muster.spec.formats.ads_shape import SHAPE, shape_of, too_small
from muster.spec.formats.ads_start import PROGRAMS, has_option, shared_out, without_tls
from muster.spec.formats.ads_variables import (
    SYNC_DIR,
    SYNCED,
    cluster_variables,
    role_variables,
    sync_url,
    unread,
)
from muster.spec.formats.ads_words import (
    CodePaths,
    environment,
    local_code,
    python_path,
    storage_mounts,
    variable_origins,
    words_of,
    write_back,
)
from muster.spec.formats.notes import Notes
from muster.spec.models import Mount
from muster.spec.places import Origin
from muster.spec.quantities import format_duration, parse_duration
from muster.spec.values import CLUSTER_TAG, MAX_RUNTIME
from muster.spec.wording import Refused

_FRAMEWORKS = ("dask", "ray", "horovod", "pytorch", "tensorflow")
#: Those whose clusters stay for clients that connect to them.
_STAYING = ("dask", "ray")
#: What says how long one that stays does; the first that is set counts.
_LIFE_SPANS = ("OCI__TTL", "TTL", "OCI__LIFE_SPAN")
#: A cluster that stays: how many workers it may grow to, and how often it is started again.
_ROOM, _RESTARTS = 16, 10
#: Seconds that it may outlive its time to live, should nothing else end it.
_SPARE = 900
#: Where programs for ADS expect Dask's scheduler, if they do not look at SCHEDULER_PORT.
_DASK_PORT = {"DASK_SCHEDULER_PORT": "8786"}
_CLUSTER, _RUNTIME = "spec.cluster.spec", "spec.runtime.spec"
_ENV, _RUNTIME_ENV = f"{_CLUSTER}.config.env", f"{_RUNTIME}.env"
#: How to follow a hint about a framework's options, which ADS's YAML does not have.
_SPEC_ONLY = " in a spec: `muster convert FILE --to muster`"
#: ADS: what synchronisation and profiling go by; here they are of all nodes alike.
_OF_ALL = (
    *("SYNC_ARTIFACTS", "SYNC_SLEEP", "WORKSPACE", "WORKSPACE_PREFIX", SYNC_DIR),
    *("PROFILE", "PROFILE_CMD", *_LIFE_SPANS),
)
#: Variables that ADS's own launchers read -> why they are not read here.
_NOT_READ = {
    "HOROVOD_ARGS": "horovodrun is not run",
    "ENABLE_TIMELINE": "say HOROVOD_TIMELINE for Horovod's own",
    "POST_PROCESSING_WAIT": "nothing is waited for",
}


def distributed_job(
    spec: ads.DistributedSpec,
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
        spec: ads.DistributedSpec,
        folder: Path,
        notes: Notes,
        problems: list[Problem],
        origins: dict[str, Origin],
    ) -> None:
        self._cluster = spec.cluster.spec
        self._runtime = spec.runtime
        self._spec = spec
        self._folder = folder
        self._notes = notes
        self._problems = problems
        self._origins = origins
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
        self._note_origins()
        program = self._program() if self._cluster.ephemeral else self._stay()
        synced = self._synced()
        code = program.pop("mounts", [])
        stored = storage_mounts(self._spec.infrastructure.spec.storage_mount, self._problems)
        places = [Origin(f"{_RUNTIME}.uri") for _ in code]
        places += [Origin(path) for path in stored]
        mounts = [*code, *stored.values()]
        if synced is not None:
            mounts.append(synced)
            workspace = self._shared.get("WORKSPACE")
            by_variable = self._variable("WORKSPACE")
            places.append(by_variable if workspace else Origin(f"{_CLUSTER}.workDir"))
        self._origins |= {f"mounts[{n}]": place for n, place in enumerate(places)}
        told = {SYNC_DIR: Mount(**synced).destination} if synced else {}
        paths = self._code.inside(*self._runtime.spec.python_path)
        options = self._options()
        made = self._variables(options)
        self._note_variables(made)
        return {
            "name": self._cluster.name or self._spec.infrastructure.spec.display_name,
            "framework": self._framework,
            "framework_options": options,
            "node_groups": self._groups(),
            **self._shape(),
            "env": {**made, **self._shared, **told, **python_path(paths)},
            **self._processes(),
            **program,
            **({"mounts": mounts} if mounts else {}),
        }

    def _shape(self) -> dict[str, Any]:
        """With ADS each node is a run of one node, which may have any shape."""
        name = shape_of(self._spec.infrastructure.spec, self._notes, self._problems)
        nodes = sum(group.get("nodes", 1) * group.get("replicas", 1) for group in self._groups())
        if name is None:
            return {}
        self._origins["shape"] = Origin(SHAPE)
        if small := too_small(name, nodes):
            self._notes.add("shapeName", f"is not used: {small}")
            return {}
        return {"shape": name}

    def _note_origins(self) -> None:
        """Of fields that are here by another name."""
        runtime = self._runtime.spec
        entry = Origin(f"{_RUNTIME}.entryPoint")
        self._origins |= dict.fromkeys(("", "artifact", "entrypoint", "command"), entry)
        self._origins["git"] = Origin(f"{_RUNTIME}.uri")
        if self._runtime.type in ("git", "remote") and runtime.uri is None and runtime.entry_point:
            self._origins[""] = self._origins["git"]
        for name in ("branch", "commit"):
            self._origins[f"git.{name}"] = Origin(f"{_RUNTIME}.{name}")
        self._origins["args"] = Origin(f"{_RUNTIME}.{'args' if runtime.args else 'kwargs'}")
        self._origins["framework"] = Origin("spec.cluster.kind")
        own_name = f"{_CLUSTER}.name"
        shown = "spec.infrastructure.spec.displayName"
        self._origins["name"] = Origin(own_name if self._cluster.name else shown)
        self._origins["env.PYTHONPATH"] = Origin(f"{_RUNTIME}.pythonPath")
        self._origins |= variable_origins(_ENV, self._cluster.config.env)
        self._origins |= variable_origins(_RUNTIME_ENV, runtime.env)
        for number, (name, role) in enumerate(self._staffed()):
            group = f"node_groups[{number}]"
            for count in ("nodes", "replicas", "max_replicas"):
                self._origins[f"{group}.{count}"] = Origin(f"{_CLUSTER}.{name}.replicas")
            own = variable_origins(f"{_CLUSTER}.{name}.config.env", role.config.env)
            self._origins |= {f"{group}.{path}": origin for path, origin in own.items()}

    def _variable(self, name: str) -> Origin:
        """Where a variable of all nodes is set, or could be."""
        return self._origins.get(f"env.{name}", Origin(_ENV, name))

    def _variables(self, options: dict[str, Any]) -> dict[str, str]:
        """Those that ADS sets. options: the framework's."""
        runtime, roles = self._runtime.spec, self._roles()
        made = cluster_variables(
            framework=self._framework,
            workers=roles["worker"].replicas if "worker" in roles else 0,
            servers=roles["ps"].replicas if "ps" in roles else 0,
            ephemeral=self._cluster.ephemeral,
            entry=runtime.entry_point,
            args=runtime.args,
            kwargs=runtime.kwargs,
            start_args=self._cluster.config.start_options,
            work_dir=self._cluster.work_dir,
        )
        if self._framework == "dask" and not has_option(
            options.get("scheduler_args", ()), "--port"
        ):
            made |= _DASK_PORT
        return made

    def _processes(self) -> dict[str, int]:
        """ADS: nprocs is how many workers Dask has on a node."""
        number = self._number("nprocs")
        self._origins["processes_per_node"] = self._place_of_workers("nprocs")
        return {} if number is None else {"processes_per_node": number}

    def _number(self, name: str) -> int | None:
        text = self._of_workers(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            path = self._place_of_workers(name).path
            self._refuse(path, f"{name} must be a whole number from 1, not {text!r}", "write 1")
            return None
        return int(text)

    def _of_workers(self, name: str) -> str | None:
        """What a variable says that Dask's workers are started by."""
        if self._framework != "dask":
            return None
        worker = self._cluster.worker
        own = environment(worker.config.env) if worker is not None else {}
        return own.get(name, self._shared.get(name))

    def _place_of_workers(self, name: str) -> Origin:
        """Where a variable of Dask's workers is set."""
        worker = self._cluster.worker
        listed = worker.config.env if worker is not None else ()
        own = variable_origins(f"{_CLUSTER}.worker.config.env", listed)
        return own.get(f"env.{name}", self._variable(name))

    def _note_cluster(self) -> None:
        if self._cluster.work_dir is not None:
            self._notes.add("workDir", "is not needed: nodes find each other without it")
        if self._cluster.image is not None:
            self._notes.add("image", "is not used: programs are those of this machine")
        if self._cluster.main.replicas > 1:
            self._notes.add("main.replicas", "is 1, as for ADS")
        if self._cluster.certificate is not None:
            self._notes.add("certificate", "is not read: Muster makes certificates for each run")
        if self._framework != "tensorflow" and "WORKER_PORT" in self._shared:
            why = f"is a variable like any other: it is TensorFlow's, not {self._framework}'s"
            self._notes.add("WORKER_PORT", why)
        for name, why in _NOT_READ.items():
            if name in self._shared:
                self._notes.add(name, f"is a variable like any other: {why}")

    def _note_variables(self, made: dict[str, str]) -> None:
        """What becomes of ADS's own variables. made: those that Muster sets."""
        for name, why in unread(self._shared, made):
            self._notes.add(name, why)
        if self._cluster.ephemeral:
            for name in _LIFE_SPANS:
                if name in self._shared:
                    self._notes.add(name, "is not used: this cluster ends with its program")

    def _staffed(self) -> list[tuple[str, ads.RoleSpec]]:
        """The roles that have nodes, by what ADS calls them."""
        return [(n, role) for n, role in self._roles().items() if n == "main" or role.replicas]

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
                    path = f"{_CLUSTER}.{name}.config.env[{place}].name"
                    text = f"{variable.name} is of all nodes alike here, not of one role"
                    self._refuse(path, text, f"say it in {_ENV}")

    # --- nodes

    def _groups(self) -> list[dict[str, Any]]:
        called = {"worker": "workers"}
        return [
            self._group(called.get(name, name), 1 if name == "main" else role.replicas, role)
            for name, role in self._staffed()
        ]

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
            where: self._code.inside(*self._words(f"{_CLUSTER}.{where}.startOptions", *options))
            for where, options in said.items()
        }
        names = PROGRAMS.get(self._framework)
        for where in given if names is None else ("ps.config",):
            if given.get(where):
                why = f"are not used: {self._framework} is started without words of its own"
                if names is not None:
                    why = f"are not used: {self._framework} has no parameter servers"
                self._notes.add(f"startOptions of {where}", why)
        if names is None:
            return {}
        made = {}
        of_all = shared_out(self._framework, given["config"])
        for name, role, shared in zip(names, ("main.config", "worker.config"), of_all, strict=True):
            where = role if given.get(role) else "config"
            made[name] = given.get(role) or shared
            place = Origin(f"{_CLUSTER}.{where}.startOptions", spec_only=_SPEC_ONLY)
            self._origins[f"framework_options.{name}"] = place
        return made

    def _options(self) -> dict[str, Any]:
        options = self._start_options()
        worker = self._cluster.worker
        if self._cluster.certificate is not None:
            if self._framework == "dask":
                options = {name: without_tls(words) for name, words in options.items()}
                options["tls"] = True
            else:
                text = f"{self._framework} does not encrypt its connections here"
                self._refuse(f"{_CLUSTER}.certificate", text, "leave it out")
        made = {name: words for name, words in options.items() if words}
        if self._framework == "dask" and worker is not None and worker.replicas:
            made["worker_on_main"] = False  # ADS: main is the scheduler and nothing else
        if (threads := self._number("nthread")) is not None:
            made["threads"] = threads
            self._origins["framework_options.threads"] = self._place_of_workers("nthread")
        if (seconds := self._of_workers("death_timeout")) is not None:
            made["worker_args"] = ["--death-timeout", seconds, *made.get("worker_args", ())]
            self._origins.setdefault(
                "framework_options.worker_args", self._place_of_workers("death_timeout")
            )
        if self._framework == "ray" and not self._cluster.ephemeral:
            made["clients"] = True
        return made

    # --- the program

    def _program(self) -> dict[str, Any]:
        runtime = self._runtime.spec
        entry = runtime.entry_point
        if entry is None:
            self._refuse(f"{_RUNTIME}.entryPoint", "is missing", "name the program")
            return {}
        if self._runtime.type == "git":
            code = self._git(entry)
        elif self._runtime.type == "remote" or runtime.uri is not None:
            code = self._remote(entry)
        else:
            path = f"{_RUNTIME}.entryPoint"
            code = local_code(self._code.inside(entry)[0], self._folder, path, self._problems)
        args = self._code.inside(*runtime.args, *runtime.kwargs)
        return {**self._profiled(code), "args": args}

    def _stay(self) -> dict[str, Any]:
        """A cluster that stays, as `muster cluster up` starts it."""
        if self._framework not in _STAYING:
            text = f"no client could connect to a {self._framework} cluster that stays"
            hint = f"leave it out; or let the cluster be one of {' and '.join(_STAYING)}"
            self._refuse(f"{_CLUSTER}.ephemeral", text, hint)
        if self._runtime.spec.entry_point is not None:
            self._notes.add("entryPoint", "is not run: a cluster that stays has no program")
        made: dict[str, Any] = {
            "command": ["python", "-m", "muster.node.keeper"],
            "failure": {"max_restarts": _RESTARTS},
            "tags": {CLUSTER_TAG: self._framework},
        }
        set_ = [name for name in _LIFE_SPANS if self._shared.get(name)]
        if not set_:
            why = "is not set: the cluster stays for 30 days, unless `muster cluster down` ends it"
            self._notes.add(_LIFE_SPANS[0], why)
            return made
        name, *others = set_
        for other in others:
            self._notes.add(other, f"is not used: {name} says how long the cluster stays")
        try:
            seconds = parse_duration(self._shared[name])
        except Refused as error:
            where = self._variable(name).path
            self._refuse(where, f"{name}: {error.message}", error.hint or "write 2h")
            return made
        after = f"{format_duration(seconds)} after its start, or by `muster cluster down`"
        self._notes.add(name, f"is {self._shared[name]}: the cluster ends {after}")
        return {
            **made,
            "command": [*made["command"], "--ttl", repr(seconds).removesuffix(".0")],
            # should its keeper be gone, the run's own limit ends it
            "max_runtime": min(seconds + _SPARE, MAX_RUNTIME),
        }

    def _git(self, entry: str) -> dict[str, Any]:
        runtime = self._runtime.spec
        if runtime.uri is None:
            self._refuse(f"{_RUNTIME}.uri", "is missing", "say where the repository is")
            return {}
        git = {"url": runtime.uri, "branch": runtime.branch, "commit": runtime.commit}
        if runtime.code_dir is not None:
            self._notes.add("codeDir", "is not needed: the code is where the program starts")
        (inside,) = self._code.inside(entry)
        return {"git": {k: v for k, v in git.items() if v is not None}, "entrypoint": inside}

    def _remote(self, entry: str) -> dict[str, Any]:
        uri = self._runtime.spec.uri
        if uri is None:
            self._refuse(f"{_RUNTIME}.uri", "is missing", "say where the code is")
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
        profiler = self._words(
            self._variable("PROFILE_CMD").path, self._shared.get("PROFILE_CMD", "")
        )
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
            where = self._variable("WORKSPACE" if told.get("WORKSPACE") else "SYNC_ARTIFACTS")
            self._refuse(where.path, str(error), hint)
            return None
        return write_back(url, told.get(SYNC_DIR, SYNCED))

    def _words(self, path: str, *texts: str) -> list[str]:
        return [word for text in texts for word in words_of(text, path, self._problems)]

    def _refuse(self, path: str, what: str, hint: str) -> None:
        self._problems.append(Problem(path, what, hint))
