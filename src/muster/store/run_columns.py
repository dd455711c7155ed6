"""The columns of a run that are JSON with a structure of their own: its status, its plan.

Of the plan, single parts are decoded: decoding all of it is slow for many nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct, convert, field

from muster.lifecycle.policy import GroupPolicy
from muster.lifecycle.status import Failure, Spent, Stopping
from muster.store.records import LIFECYCLE_KEYS, CorruptRecord, RunRecord
from muster.type_info import compile_type

if TYPE_CHECKING:
    from muster.plan.model import Parameters, ResourcePlan, UnsentFiles

T = TypeVar("T")


class Lifecycle(Struct, frozen=True, omit_defaults=True, rename=LIFECYCLE_KEYS):
    """The fields of `RunStatus` without a column, stored as JSON in the run's `lifecycle`."""

    last_incarnation: int = 0
    native_restarts: int = 0
    counted_restarts: tuple[int, ...] = ()
    resumes: int = 0
    attempt_started_at: float | None = None
    running_since: float | None = None
    ran_before: float = 0.0
    groups_started: Mapping[str, float] = field(default_factory=dict)
    spent: Spent = Spent()
    streak: int = 0
    restarted_at: float | None = None
    failures: tuple[Failure, ...] = ()
    cause: Failure | None = None
    tolerated: Mapping[str, Failure] = field(default_factory=dict)
    stopping: Stopping | None = None
    handed_over: str = ""
    broken: bool = False


def lifecycle_of(run: RunRecord) -> Lifecycle:
    """The `lifecycle` of a run; empty for a run that was just accepted. Raises CorruptRecord."""
    kept: Mapping[str, Any] = run.lifecycle or {}
    compile_type(Lifecycle)
    try:
        return msgspec.convert({k: v for k, v in kept.items() if v is not None}, Lifecycle)
    except msgspec.ValidationError as error:
        raise corrupt(run, f"lifecycle: {error}") from None


def corrupt(run: RunRecord, why: str) -> CorruptRecord:
    """The error for a run whose columns can be read but are not valid."""
    return CorruptRecord(
        f"the record of run {run.name} (id {run.id}) in the store is corrupt, or of another "
        f"version of Muster: {why}; `muster rm {run.id}` removes it"
    )


class _GroupSize(Struct):
    name: str
    replicas: int
    nodes: int


class _Service(Struct):
    name: str
    output: str


@contextmanager
def reading(run: RunRecord, column: str) -> Iterator[None]:
    """Raise CorruptRecord where a column of the record does not have its structure."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise corrupt(run, f"{column}: {error!r}") from None


class StoredPlan:
    """Reads parts of the plan. Each method raises CorruptRecord if its part is damaged."""

    def __init__(self, run: RunRecord) -> None:
        self._run = run

    def get(self, name: str) -> Any:
        """A field of the plan, as plain data."""
        with reading(self._run, "plan"):
            return self._run.plan[name]

    def _convert(self, data: Any, kind: type[T]) -> T:
        compile_type(kind)
        with reading(self._run, "plan"):
            return convert(data, kind)

    def node_outputs(self) -> bool:
        """See `RunPlan.node_outputs`."""
        return bool(self._run.plan.get("node_outputs"))

    def group_sizes(self) -> dict[str, int]:
        """Group -> its maximum of nodes, in rank order."""
        groups = self._convert(self.get("groups"), list[_GroupSize])
        return {group.name: group.replicas * group.nodes for group in groups}

    def policies(self) -> list[GroupPolicy]:
        """The policies of all groups, in rank order."""
        with reading(self._run, "plan"):
            stored = self._run.plan.get("policy", {}).get("groups")
        if stored is not None:
            return self._convert(stored, list[GroupPolicy])
        # of an earlier version, which had no arrays
        first, made = 0, []
        for group in self._convert(self.get("groups"), list[_GroupSize]):
            made.append(GroupPolicy(group.name, first, group.replicas, group.nodes, 0))
            first += group.replicas * group.nodes
        return made

    def arrays(self) -> list[GroupPolicy]:
        """The policies of the groups that are arrays, in rank order."""
        with reading(self._run, "plan"):
            groups = self._run.plan.get("policy", {}).get("groups", ())
            if not any(group.get("parallelism") for group in groups):
                return []
        return [group for group in self.policies() if group.is_array]

    def parameters(self, unseal: Callable[[Any], Any] | None = None) -> Parameters | None:
        """The parameters of an array's replicas; None if there are none. unseal: decrypts them;
        else the values of secret ones are sealed texts."""
        given = self._run.plan.get("parameters")
        if not given:
            return None
        from muster.plan.model import Parameters

        return self._convert(given if unseal is None else unseal(given), Parameters)

    def secrets(self) -> dict[str, str]:
        """`RunPlan.secrets`, sealed."""
        with reading(self._run, "plan"):
            return dict(self._run.plan.get("secrets") or {})

    def resources(self) -> dict[str, ResourcePlan]:
        """Group -> its resources, for groups that have any."""
        from muster.plan.model import ResourcePlan

        groups = self.get("groups")
        with reading(self._run, "plan"):
            resources = {
                convert(g["name"], str): convert(g["resources"], ResourcePlan) for g in groups
            }
        return {name: given for name, given in resources.items() if given != ResourcePlan()}

    def directories_in_place(self) -> list[str]:
        """The directories of the machine where programs start, not in a copy of the code."""
        from muster.plan.model import directory_in_place

        groups = self.get("groups")
        with reading(self._run, "plan"):
            found = [
                directory_in_place(g.get("working_dir"), [mount["path"] for mount in g["mounts"]])
                for g in groups
            ]
        return [each for each in dict.fromkeys(found) if each is not None]

    def mounts(self) -> dict[str, str]:
        """The path of each mount -> the environment variable that has it."""
        groups = self.get("groups")
        with reading(self._run, "plan"):
            return {m["path"]: m["variable"] for group in groups for m in group["mounts"]}

    def limits_disk(self) -> bool:
        """Whether a group has `resources.disk`."""
        groups = self.get("groups")
        with reading(self._run, "plan"):
            return any(group["resources"].get("disk") is not None for group in groups)

    def services_with_output(self) -> list[str]:
        """The framework's services whose output is kept apart, and `all` if there are any."""
        groups = self.get("groups")
        with reading(self._run, "plan"):
            services = [s for group in groups for s in group.get("role", {}).get("services", ())]
        every = self._convert(services, list[_Service])
        found = dict.fromkeys(service.name for service in every if service.output == "own")
        return [*found, "all"] if found else []

    def unsent_files(self) -> UnsentFiles | None:
        """The files next to the code that were not sent."""
        artifact = self.get("artifact") or {}
        with reading(self._run, "plan"):
            left = artifact.get("left_behind")
        if not left:
            return None
        from muster.plan.model import UnsentFiles

        return self._convert(left, UnsentFiles)
