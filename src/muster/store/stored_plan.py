"""Parts of a run's plan as it is stored: decoding all of it is slow for many nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, convert

from muster.store.records import RunRecord

if TYPE_CHECKING:
    from muster.plan.model import ResourcePlan, UnsentFiles

T = TypeVar("T")


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
        from muster.store.run_columns import corrupt

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
        with reading(self._run, "plan"):
            return convert(data, kind)

    def node_outputs(self) -> bool:
        """See `RunPlan.node_outputs`."""
        return bool(self._run.plan.get("node_outputs"))

    def group_sizes(self) -> dict[str, int]:
        """Group -> its maximum of nodes, in rank order."""
        groups = self._convert(self.get("groups"), list[_GroupSize])
        return {group.name: group.replicas * group.nodes for group in groups}

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
