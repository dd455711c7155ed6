"""ADS: `spec.cluster` of `kind: distributed`, as node groups and framework options."""

from __future__ import annotations

from typing import Any

from muster.spec.formats.ads import model as ads
from muster.spec.formats.ads.code import CodePaths
from muster.spec.formats.ads.conversion import Conversion
from muster.spec.formats.ads.environment import environment, variable_origins
from muster.spec.formats.ads.start_options import (
    PROGRAMS,
    has_option,
    split_by_program,
    without_tls,
)
from muster.spec.formats.ads.variables import SYNC_DIR, cluster_variables, role_variables, unread
from muster.spec.problem_places import Origin
from muster.spec.wording import short, suggestion

CLUSTER = "spec.cluster.spec"
RUNTIME = "spec.runtime.spec"
_ENV, _RUNTIME_ENV = f"{CLUSTER}.config.env", f"{RUNTIME}.env"
FRAMEWORKS = ("dask", "ray", "horovod", "pytorch", "tensorflow")
#: Variables with the lifetime of a persistent cluster; the first that is set counts.
LIFETIME = ("OCI__TTL", "TTL", "OCI__LIFE_SPAN")
#: A group of a persistent cluster can grow to four times its size, and at least to this.
_MIN_CAPACITY = 16
#: Where programs written for ADS expect Dask's scheduler if they do not read SCHEDULER_PORT.
_DASK_PORT = {"DASK_SCHEDULER_PORT": "8786"}
#: Added to hints about framework options, which ADS's YAML does not have.
_SPEC_ONLY = " in a spec: `muster convert FILE --to muster`"
#: Variables of synchronisation, profiling and lifetime: the same for all nodes here.
_FOR_ALL_NODES = (
    *("SYNC_ARTIFACTS", "SYNC_SLEEP", "WORKSPACE", "WORKSPACE_PREFIX", SYNC_DIR),
    *("PROFILE", "PROFILE_CMD", *LIFETIME),
)
#: Variables that ADS's own launchers read -> why Muster does not.
_NOT_READ = {
    "HOROVOD_ARGS": "Muster does not run horovodrun",
    "ENABLE_TIMELINE": "set HOROVOD_TIMELINE for Horovod's own timeline",
    "POST_PROCESSING_WAIT": "Muster does not wait for post-processing",
}


class ClusterReader:
    """Reads the cluster of a distributed job, and the variables of its nodes."""

    def __init__(self, spec: ads.DistributedSpec, code: CodePaths, conversion: Conversion) -> None:
        self.spec = spec.cluster.spec
        self._kind = spec.cluster.kind
        self.framework = self._kind.lower()
        self._runtime = spec.runtime.spec
        self._code = code
        self._conversion = conversion
        self._notes = conversion.notes
        self._origins = conversion.origins
        #: The user's variables of all nodes.
        self.env = code.relative_values(environment(self.spec.config.env, self._runtime.env))
        self._origins |= variable_origins(_ENV, self.spec.config.env)
        self._origins |= variable_origins(_RUNTIME_ENV, self._runtime.env)

    def check(self) -> None:
        """Note or refuse what Muster does not support."""
        if self.framework not in FRAMEWORKS:
            text = f"{short(self._kind)} is not a kind of cluster"
            self._conversion.refuse("spec.cluster.kind", text, suggestion(self._kind, FRAMEWORKS))
        self._note_fields()
        for name, role in self._roles().items():
            for place, variable in enumerate(role.config.env):
                if variable.name in _FOR_ALL_NODES:
                    path = f"{CLUSTER}.{name}.config.env[{place}].name"
                    text = f"{variable.name} applies to all nodes here, not to one role"
                    self._conversion.refuse(path, text, f"set it in {_ENV}")

    def _note_fields(self) -> None:
        add = self._notes.add
        if self.spec.work_dir is not None:
            add("workDir", "is not needed: nodes find each other without it")
        if self.spec.image is not None:
            add(
                "image",
                "is for engines that have images; elsewhere, programs are those of the machine",
            )
        if self.spec.main.replicas > 1:
            add("main.replicas", "is 1, as for ADS")
        if self.spec.certificate is not None:
            add("certificate", "is not read: Muster makes certificates for each run")
        if self.framework != "tensorflow" and "WORKER_PORT" in self.env:
            why = f"is a variable like any other: it is TensorFlow's, not {self.framework}'s"
            add("WORKER_PORT", why)
        for name, why in _NOT_READ.items():
            if name in self.env:
                add(name, f"is a variable like any other: {why}")

    def place_of(self, name: str) -> Origin:
        """Where a variable of all nodes is set, or could be."""
        return self._origins.get(f"env.{name}", Origin(_ENV, name))

    # --- roles and groups

    def groups(self) -> list[dict[str, Any]]:
        """The node groups: `main` of one node, `workers`, `ps`."""
        made = []
        for number, (name, role) in enumerate(self._staffed_roles()):
            group = f"node_groups[{number}]"
            for count in ("nodes", "replicas", "max_replicas"):
                self._origins[f"{group}.{count}"] = Origin(f"{CLUSTER}.{name}.replicas")
            own = variable_origins(f"{CLUSTER}.{name}.config.env", role.config.env)
            self._origins |= {f"{group}.{path}": origin for path, origin in own.items()}
            called = {"worker": "workers"}.get(name, name)
            made.append(self._group(called, 1 if name == "main" else role.replicas, role))
        return made

    def node_count(self) -> int:
        """Nodes of the whole job."""
        return sum(1 if name == "main" else r.replicas for name, r in self._staffed_roles())

    def _group(self, name: str, nodes: int, role: ads.RoleSpec) -> dict[str, Any]:
        env = self._code.relative_values(environment(role.config.env))
        made: dict[str, Any] = {"name": name, "env": {**role_variables(name), **env}}
        if name != "ps":
            made["node_env"] = {"RANK": "${rank}"}  # ADS: the main node, then the workers
        if self.spec.ephemeral or name == "main":
            return {**made, "nodes": nodes}
        # replicas, not nodes, so that the group can be scaled
        return {**made, "replicas": nodes, "max_replicas": max(4 * nodes, _MIN_CAPACITY)}

    def _staffed_roles(self) -> list[tuple[str, ads.RoleSpec]]:
        """The roles that have nodes, with ADS's names."""
        return [(n, role) for n, role in self._roles().items() if n == "main" or role.replicas]

    def _roles(self) -> dict[str, ads.RoleSpec]:
        roles = {"main": self.spec.main, "worker": self.spec.worker, "ps": self.spec.ps}
        return {name: role for name, role in roles.items() if role is not None}

    # --- variables

    def ads_variables(self, options: dict[str, Any]) -> dict[str, str]:
        """The variables that ADS sets on all nodes. options: the framework's. Notes variables of
        the user that are not read."""
        runtime, roles = self._runtime, self._roles()
        made = cluster_variables(
            framework=self.framework,
            workers=roles["worker"].replicas if "worker" in roles else 0,
            servers=roles["ps"].replicas if "ps" in roles else 0,
            ephemeral=self.spec.ephemeral,
            entry=runtime.entry_point,
            args=runtime.args,
            kwargs=runtime.kwargs,
            start_args=self.spec.config.start_options,
            work_dir=self.spec.work_dir,
        )
        if self.framework == "dask" and not has_option(options.get("scheduler_args", ()), "--port"):
            made |= _DASK_PORT
        for name, why in unread(self.env, made):
            self._notes.add(name, why)
        if self.spec.ephemeral:
            for name in LIFETIME:
                if name in self.env:
                    self._notes.add(name, "is not used: this cluster ends with its program")
        return made

    def processes(self) -> dict[str, int]:
        """ADS: nprocs is the number of Dask workers on a node."""
        number = self._worker_number("nprocs")
        self._origins["processes_per_node"] = self._place_of_worker("nprocs")
        return {} if number is None else {"processes_per_node": number}

    def _worker_number(self, name: str) -> int | None:
        text = self._worker_variable(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) < 1:
            path = self._place_of_worker(name).path
            what = f"{name} must be a whole number from 1, not {text!r}"
            self._conversion.refuse(path, what, "write 1")
            return None
        return int(text)

    def _worker_variable(self, name: str) -> str | None:
        """A variable that ADS starts Dask's workers by; None for other frameworks."""
        if self.framework != "dask":
            return None
        worker = self.spec.worker
        own = environment(worker.config.env) if worker is not None else {}
        return own.get(name, self.env.get(name))

    def _place_of_worker(self, name: str) -> Origin:
        worker = self.spec.worker
        listed = worker.config.env if worker is not None else ()
        own = variable_origins(f"{CLUSTER}.worker.config.env", listed)
        return own.get(f"env.{name}", self.place_of(name))

    # --- framework options

    def options(self) -> dict[str, Any]:
        """`framework_options` of the spec."""
        options = self._start_options()
        worker = self.spec.worker
        if self.spec.certificate is not None:
            if self.framework == "dask":
                options = {name: without_tls(words) for name, words in options.items()}
                options["tls"] = True
            else:
                text = f"{self.framework} does not encrypt its connections here"
                self._conversion.refuse(f"{CLUSTER}.certificate", text, "leave it out")
        made = {name: words for name, words in options.items() if words}
        if self.framework == "dask" and worker is not None and worker.replicas:
            made["worker_on_main"] = False  # ADS: the main node runs the scheduler only
        if (threads := self._worker_number("nthread")) is not None:
            made["threads"] = threads
            self._origins["framework_options.threads"] = self._place_of_worker("nthread")
        if (seconds := self._worker_variable("death_timeout")) is not None:
            made["worker_args"] = ["--death-timeout", seconds, *made.get("worker_args", ())]
            place = self._place_of_worker("death_timeout")
            self._origins.setdefault("framework_options.worker_args", place)
        if self.framework == "ray" and not self.spec.ephemeral:
            made["clients"] = True
        return made

    def _start_options(self) -> dict[str, Any]:
        listed = {
            "config": self.spec.config.start_options,
            **{f"{k}.config": role.config.start_options for k, role in self._roles().items()},
        }
        given = {
            where: [
                word
                for text in options
                for word in self._code.relative(
                    *self._conversion.words(f"{CLUSTER}.{where}.startOptions", text)
                )
            ]
            for where, options in listed.items()
        }
        programs = PROGRAMS.get(self.framework)
        for where in given if programs is None else ("ps.config",):
            if given.get(where):
                why = f"are not used: {self.framework} has no options at its start"
                if programs is not None:
                    why = f"are not used: {self.framework} has no parameter servers"
                self._notes.add(f"startOptions of {where}", why)
        if programs is None:
            return {}
        made = {}
        common = split_by_program(self.framework, given["config"])
        for name, role, shared in zip(
            programs, ("main.config", "worker.config"), common, strict=True
        ):
            where = role if given.get(role) else "config"
            made[name] = given.get(role) or shared
            place = Origin(f"{CLUSTER}.{where}.startOptions", spec_only=_SPEC_ONLY)
            self._origins[f"framework_options.{name}"] = place
        return made
