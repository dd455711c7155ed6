"""ADS: `kind: distributed`, a cluster and the program that it runs."""

from __future__ import annotations

from typing import Any

from muster.spec.formats.ads import model as ads
from muster.spec.formats.ads.cluster import CLUSTER, LIFETIME, RUNTIME, ClusterReader
from muster.spec.formats.ads.code import CodePaths, git_source, local_code, python_path
from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.mounts import storage_mounts
from muster.spec.formats.ads.shape import SHAPE, multinode_problem, shape_of
from muster.spec.formats.ads.sync import synced_folder
from muster.spec.formats.ads.variables import SYNC_DIR
from muster.spec.models import Mount
from muster.spec.problem_places import Origin
from muster.spec.quantities import format_duration, parse_duration
from muster.spec.values import CLUSTER_TAG, MAX_RUNTIME
from muster.spec.wording import Refused

#: Frameworks whose clusters can run without a program, for clients that connect to them.
_PERSISTENT = ("dask", "ray")
#: Restarts of a persistent cluster.
_RESTARTS = 10
#: Seconds added to the TTL to get `max_runtime`, the fallback if the TTL process is lost.
_TTL_MARGIN = 900


def distributed_job(spec: ads.DistributedSpec, conversion: Conversion) -> dict[str, Any]:
    """The spec as plain data."""
    return _Reader(spec, conversion).read()


class _Reader:
    def __init__(self, spec: ads.DistributedSpec, conversion: Conversion) -> None:
        self._spec = spec
        self._runtime = spec.runtime.spec
        self._conversion = conversion
        self._notes = conversion.notes
        self._origins = conversion.origins
        self._code = CodePaths(self._runtime.code_dir, conversion.notes)
        self._cluster = ClusterReader(spec, self._code, conversion)

    def read(self) -> dict[str, Any]:
        cluster = self._cluster
        cluster.check()
        self._note_origins()
        program = self._program() if cluster.spec.ephemeral else self._persistent()
        groups = cluster.groups()
        synced = self._synced_mount()
        mounts = self._mounts(program.pop("mounts", []), synced)
        sync_dir = {SYNC_DIR: Mount(**synced).destination} if synced else {}
        paths = self._code.relative(*self._runtime.python_path)
        options = cluster.options()
        return {
            "name": cluster.spec.name or self._spec.infrastructure.spec.display_name,
            "framework": cluster.framework,
            "framework_options": options,
            "node_groups": groups,
            **self._shape(),
            "env": {
                **cluster.ads_variables(options),
                **cluster.env,
                **sync_dir,
                **python_path(paths),
            },
            **cluster.processes(),
            **program,
            **({"mounts": mounts} if mounts else {}),
        }

    def _shape(self) -> dict[str, Any]:
        """ADS: each node is a run of one node, and may have any shape."""
        name = shape_of(self._spec.infrastructure.spec, self._conversion)
        if name is None:
            return {}
        self._origins["shape"] = Origin(SHAPE)
        if problem := multinode_problem(name, self._cluster.node_count()):
            self._notes.add("shapeName", f"is not used: {problem}")
            return {}
        return {"shape": name}

    def _note_origins(self) -> None:
        """Record which YAML field each spec field came from, where the names differ."""
        runtime = self._runtime
        entry = Origin(f"{RUNTIME}.entryPoint")
        self._origins |= dict.fromkeys(("", "artifact", "entrypoint", "command"), entry)
        self._origins["git"] = Origin(f"{RUNTIME}.uri")
        fetched = self._spec.runtime.type in ("git", "remote")
        if fetched and runtime.uri is None and runtime.entry_point:
            self._origins[""] = self._origins["git"]
        for name in ("branch", "commit"):
            self._origins[f"git.{name}"] = Origin(f"{RUNTIME}.{name}")
        self._origins["args"] = Origin(f"{RUNTIME}.{'args' if runtime.args else 'kwargs'}")
        self._origins["framework"] = Origin("spec.cluster.kind")
        cluster_name = f"{CLUSTER}.name"
        shown = "spec.infrastructure.spec.displayName"
        self._origins["name"] = Origin(cluster_name if self._cluster.spec.name else shown)
        self._origins["env.PYTHONPATH"] = Origin(f"{RUNTIME}.pythonPath")

    # --- mounts

    def _mounts(
        self, code: list[dict[str, Any]], synced: dict[str, Any] | None
    ) -> list[dict[str, Any]]:
        stored = storage_mounts(self._spec.infrastructure.spec.storage_mount, self._conversion)
        places = [Origin(f"{RUNTIME}.uri") for _ in code]
        places += [Origin(path) for path in stored]
        mounts = [*code, *stored.values()]
        if synced is not None:
            mounts.append(synced)
            workspace = self._cluster.env.get("WORKSPACE")
            work_dir = Origin(f"{CLUSTER}.workDir")
            places.append(self._cluster.place_of("WORKSPACE") if workspace else work_dir)
        self._origins |= {f"mounts[{n}]": place for n, place in enumerate(places)}
        return mounts

    def _synced_mount(self) -> dict[str, Any] | None:
        cluster = self._cluster
        names = ("WORKSPACE", "SYNC_ARTIFACTS")
        places = {name: cluster.place_of(name) for name in names}
        return synced_folder(cluster.env, cluster.spec.work_dir, places, self._conversion)

    # --- the program

    def _program(self) -> dict[str, Any]:
        runtime = self._runtime
        entry = runtime.entry_point
        if entry is None:
            self._conversion.refuse(f"{RUNTIME}.entryPoint", "is missing", "name the program")
            return {}
        if self._spec.runtime.type == "git":
            code = self._git(entry)
        elif self._spec.runtime.type == "remote" or runtime.uri is not None:
            code = self._remote(entry)
        else:
            path = f"{RUNTIME}.entryPoint"
            code = local_code(self._code.relative(entry)[0], path, self._conversion)
        args = self._code.relative(*runtime.args, *runtime.kwargs)
        return {**self._with_profiler(code), "args": args}

    def _git(self, entry: str) -> dict[str, Any]:
        runtime = self._runtime
        if runtime.uri is None:
            self._conversion.refuse(f"{RUNTIME}.uri", "is missing", "name the repository")
            return {}
        git = git_source(runtime.uri, runtime.branch, runtime.commit)
        if runtime.code_dir is not None:
            self._notes.add("codeDir", "is not needed: the code is where the program starts")
        (inside,) = self._code.relative(entry)
        return {"git": git, "entrypoint": inside}

    def _remote(self, entry: str) -> dict[str, Any]:
        uri = self._runtime.uri
        if uri is None:
            self._conversion.refuse(f"{RUNTIME}.uri", "is missing", "name the code's folder")
            return {}
        (inside,) = self._code.relative(entry)
        # ADS puts the fetched folder into the code's folder
        inside = inside.removeprefix(uri.rstrip("/").rpartition("/")[2] + "/")
        if "://" not in uri:
            return {"artifact": uri, "entrypoint": inside}
        mount = {"source": uri, "path": "/mnt/code", "read_only": True}
        return {"mounts": [mount], "command": ["python", f"/mnt/code/{inside}"]}

    def _with_profiler(self, code: dict[str, Any]) -> dict[str, Any]:
        """ADS: PROFILE=1 puts PROFILE_CMD before the program."""
        env = self._cluster.env
        if env.get("PROFILE") != "1":
            return code
        path = self._cluster.place_of("PROFILE_CMD").path
        profiler = self._conversion.words(path, env.get("PROFILE_CMD", ""))
        if not profiler or not code:
            return code
        program = code.get("command") or ["python", code["entrypoint"]]
        kept = {name: value for name, value in code.items() if name != "entrypoint"}
        return {**kept, "command": [*profiler, *program]}

    # --- a persistent cluster

    def _persistent(self) -> dict[str, Any]:
        """A cluster without a program, as `muster cluster up` starts it."""
        framework = self._cluster.framework
        if framework not in _PERSISTENT:
            text = f"{framework} cannot run as a persistent cluster"
            hint = f"leave it out; or use {' or '.join(_PERSISTENT)}"
            self._conversion.refuse(f"{CLUSTER}.ephemeral", text, hint)
        if self._runtime.entry_point is not None:
            self._notes.add("entryPoint", "is not run: a persistent cluster has no program")
        made: dict[str, Any] = {
            "command": ["python", "-m", "muster.node.cluster_lifetime"],
            "failure": {"max_restarts": _RESTARTS},
            "tags": {CLUSTER_TAG: framework},
        }
        seconds = self._lifetime()
        if seconds is None:
            return made
        return {
            **made,
            "command": [*made["command"], "--ttl", repr(seconds).removesuffix(".0")],
            # ends the cluster if the process that counts the TTL is lost
            "max_runtime": min(seconds + _TTL_MARGIN, MAX_RUNTIME),
        }

    def _lifetime(self) -> float | None:
        """Seconds after which a persistent cluster ends; None for Muster's default."""
        env = self._cluster.env
        set_ = [name for name in LIFETIME if env.get(name)]
        if not set_:
            why = "is not set: the cluster ends after 30 days, or by `muster cluster down`"
            self._notes.add(LIFETIME[0], why)
            return None
        name, *others = set_
        for other in others:
            self._notes.add(other, f"is not used: {name} sets the cluster's lifetime")
        try:
            seconds = parse_duration(env[name])
        except Refused as error:
            where = self._cluster.place_of(name).path
            self._conversion.refuse(where, f"{name}: {error.message}", error.hint or "write 2h")
            return None
        after = f"{format_duration(seconds)} after its start, or by `muster cluster down`"
        self._notes.add(name, f"is {env[name]}: the cluster ends {after}")
        return seconds
