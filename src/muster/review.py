"""Everything that is wrong with a run that cannot start, of all stages at once.

A run that can start passes its stages one after the other, and the first one that refuses it ends
that. Here each stage looks at what there is, with what could not be read at its default; a stage
that cannot do without something broken is left out, so that nothing is said that only follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from muster.drafting import in_own_terms, mount_paths, plan_on_machine
from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Setup
from muster.identity import new_id
from muster.plan.arrange import Arranged, arrange
from muster.plan.build import Identity
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes
from muster.spec.places import at_origin, follows, in_order, placed, touched
from muster.spec.policies import FailurePolicy, SuccessPolicy
from muster.spec.reader import Written
from muster.spec.resolve import merge
from muster.spec.rules import check
from muster.spec.size_rules import MAX_GROUPS
from muster.spec.values import MAX_NODES, MAX_PROCESSES
from muster.storage.home import Home
from muster.storage.sources import check_gathering

_GROUP = re.compile(r"node_groups\[([^\]]*)\]\.?")
_CODE = ("artifact", "git")
_PROGRAM = (*_CODE, "entrypoint", "command", "node_groups.command")
#: What a framework looks at before it says how nodes find each other.
_SHAPE = (
    *_PROGRAM,
    "framework",
    "framework_options",
    "processes_per_node",
    "nodes",
    *(f"node_groups.{name}" for name in ("name", "nodes", "replicas", "max_replicas")),
)


def review(
    home: Home, written: Written, changes: Changes, found: Sequence[Problem] = ()
) -> list[Problem]:
    """Every problem, in the order of the spec's lines, those of flags first.

    found: what has been found already. Repositories are not asked: that takes time, and comes when
    all else is right.
    """
    spec = _told_apart(written.spec)
    broken = [*written.broken, *changes.broken]
    if any(not problem.path for problem in written.problems):
        broken.append("command")  # nothing to run
    later = [*found, *_of_code(home, spec, broken)]
    merged, wrong = merge(spec, changes.overrides)
    if not touched(["node_groups.name"], broken):
        later += wrong
    if changes.overrides != RunOverrides():
        before = set(map(_what, check(merge(spec, RunOverrides())[0].spec, broken)))
        later += [p for p in check(merged.spec, broken) if _what(p) not in before]
    arranged = Arranged(merged.spec, Setup())
    if not touched(_SHAPE, broken) and not _too_large(merged.spec):
        try:
            arranged = arrange(merged.spec)
        except InvalidInput as error:
            later += error.problems
    later += _of_plan(home, arranged, spec)
    places = _Places(written, spec, changes, merged.origins)
    return list(places.sort(later, broken))


def review_resume(run: JobSpec, changes: Changes, found: Sequence[Problem]) -> list[Problem]:
    """What is wrong with changes of a suspended run, at the flags that say so. run: as it was."""
    origins = merge(run, changes.overrides)[0].origins
    return list(_Places(Written(run), run, changes, origins).sort(found, changes.broken))


def _too_large(spec: JobSpec) -> bool:
    """Larger than any run may be, which has been said: what grows with it could take for ever."""
    size = spec.most_nodes
    processes = size * spec.processes_per_node
    return size > MAX_NODES or processes > MAX_PROCESSES or len(spec.node_groups) > MAX_GROUPS


def _told_apart(spec: JobSpec) -> JobSpec:
    """With a name of its own for each group, whatever is wrong with those they have."""
    names: set[str] = set()
    groups = []
    for number, group in enumerate(spec.node_groups):
        name = group.name if group.name and group.name not in names else f"group-{number}"
        names.add(name)
        groups.append(replace(group, name=name))
    return replace(spec, node_groups=tuple(groups))


def _of_code(home: Home, spec: JobSpec, broken: Sequence[str]) -> list[Problem]:
    if touched(_CODE, broken):
        spec = replace(spec, artifact=None, git=None)
    return check_gathering(home, spec, entrypoint_known=not touched(_PROGRAM, broken))


def _of_plan(home: Home, arranged: Arranged, written: JobSpec) -> list[Problem]:
    """What this machine cannot do. Which policies a run has makes no difference to that."""
    spec = arranged.spec
    if _too_large(spec):
        return []
    bare = replace(
        spec,
        name=spec.name or "job",
        node_groups=tuple(map(_without_policies, spec.node_groups)),
        success=SuccessPolicy(),
        failure=FailurePolicy(),
        checkpoint=None,
    )
    identity = Identity(new_id(), "job-?", new_id(), "job")
    arranged = replace(arranged, spec=bare)
    return plan_on_machine(home, arranged, identity, None, mount_paths(written))[1]


def _without_policies(group: NodeGroup) -> NodeGroup:
    return replace(
        group,
        depends_on=(),
        min_success=None,
        max_replicas=max(group.most_replicas, group.replicas),
        hostname=None,
        node_env={},
        node_args=None,
    )


def _what(problem: Problem) -> tuple[str, str]:
    return problem.path, problem.message


class _Places:
    """Where problems of any stage are in what somebody wrote."""

    def __init__(
        self, written: Written, spec: JobSpec, changes: Changes, origins: Mapping[str, str]
    ) -> None:
        self._written = written
        self._spec = spec
        self._changes = changes
        self._changed = {_own(path) for path, origin in origins.items() if origin == "override"}
        self._numbers = {group.name: n for n, group in enumerate(spec.node_groups)}
        self._groups = {*self._numbers, *map(str, self._numbers.values())}

    def sort(self, later: Iterable[Problem], broken: Sequence[str]) -> Iterator[Problem]:
        """All of them once, with their places, less what follows from what is broken."""
        written = self._written
        of_spec, of_run = list(written.problems), list[Problem]()
        told = set(map(_what, of_spec))
        broken = [self._path(path) if written.lines else path for path in broken]
        for found in later:
            problem = self._in_file(in_own_terms(found, self._spec))
            if _what(problem) in told or follows(problem.path, broken):
                continue
            told.add(_what(problem))
            if self._is_of_run(problem.path):
                of_run.append(problem._replace(path=self._flag(problem.path) or problem.path))
            else:
                of_spec.append(at_origin(problem, written.origins))
        yield from self._changes.problems
        yield from of_run
        # what was written once may be several fields of the spec
        for problem in dict.fromkeys(in_order(of_spec, written.lines)):
            yield placed(problem, written.source, written.lines)

    def _is_of_run(self, path: str) -> bool:
        """Whether it is about something that the run changes, or that only the run speaks of."""
        group = _GROUP.match(path)
        if group is not None and group[1] not in self._groups:
            return True
        return follows(_own(path), self._changed)

    def _flag(self, path: str) -> str:
        said = self._changes.said
        names = self._names(path)
        flags = (said[whole] for whole in (*names, _own(path)) if whole in said)
        within = (flag for inner, flag in said.items() if follows(inner, names))
        return next(flags, "") or next(within, "")

    def _names(self, path: str) -> list[str]:
        """The path, with its group by name and by number."""
        group = _GROUP.match(path)
        if group is None:
            return [path]
        pairs = [(name, str(number)) for name, number in self._numbers.items()]
        both = next((pair for pair in pairs if group[1] in pair), (group[1],))
        return [f"node_groups[{name}].{path[group.end() :]}".rstrip(".") for name in both]

    def _in_file(self, problem: Problem) -> Problem:
        return problem._replace(path=self._path(problem.path)) if self._written.lines else problem

    def _path(self, path: str) -> str:
        """As in the file: groups by number."""
        match = _GROUP.match(path)
        if match is None or match[1] not in self._numbers:
            return path
        return f"node_groups[{self._numbers[match[1]]}].{path[match.end() :]}".rstrip(".")


def _own(path: str) -> str:
    """A path without the group it is in."""
    return _GROUP.sub("", path)
