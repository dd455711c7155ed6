"""All problems of a run that cannot start, of every stage at once.

A run is normally checked stage by stage, up to the first stage that refuses it. Here every stage
checks the run, with defaults for fields that cannot be read. A stage that depends on such a field
is skipped, so that no consequence of another problem is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from muster.errors import InvalidInput, Problem
from muster.frameworks.base import Setup
from muster.identity import new_id
from muster.plan.arrange import Arranged, arrange
from muster.plan.build import Identity
from muster.service.context import Context
from muster.service.planning import mount_paths, plan_on_machine
from muster.service.prepare import path_as_written
from muster.spec.models import JobSpec, NodeGroup
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes
from muster.spec.paths import is_url
from muster.spec.policies import FailurePolicy, FailureRule, SuccessPolicy
from muster.spec.problem_places import at_origin, follows, in_order, placed, short_path, touched
from muster.spec.reader import ParsedSpec
from muster.spec.resolve import merge
from muster.spec.rules import check
from muster.spec.rules.structure import MAX_GROUPS, unfilled_placeholders
from muster.spec.values import MAX_NODES, MAX_PROCESSES
from muster.storage.sources import check_gathering

_GROUP = re.compile(r"node_groups\[([^\]]*)\]\.?")
_CODE = ("artifact", "git")
_PROGRAM = (*_CODE, "entrypoint", "command", "node_groups.command")
#: Path of a setting -> those of the options that set it, where these are others.
_OPTION_PATHS = {"failure.max_restarts": ("max_restarts",)}
#: Fields that a framework uses to arrange the groups.
_ARRANGEMENT = (
    *_PROGRAM,
    "framework",
    "framework_options",
    "processes_per_node",
    "nodes",
    *(f"node_groups.{name}" for name in ("name", "nodes", "replicas", "max_replicas")),
)


def review(
    context: Context, written: ParsedSpec, changes: Changes, found: Sequence[Problem] = ()
) -> list[Problem]:
    """Every problem: those of flags first, then the others in the order of the spec's lines.

    found: problems that are known already. Git repositories are not contacted, which takes time: a
    run without other problems does that later.
    """
    spec = _with_unique_groups(written.spec)
    broken = [*written.broken, *changes.broken]
    if any(not problem.path for problem in written.problems):
        broken.append("command")  # there is no program
    later = [*found, *_code_problems(context, spec, broken)]
    merged, wrong = merge(spec, changes.overrides)
    if not touched(["node_groups.name"], broken):
        later += wrong
    if changes.overrides != RunOverrides():
        before = set(map(_key, check(merge(spec, RunOverrides())[0].spec, broken)))
        later += [p for p in check(merged.spec, broken) if _key(p) not in before]
    later += unfilled_placeholders(merged.spec)
    arranged = Arranged(merged.spec, Setup())
    if not touched(_ARRANGEMENT, broken) and not _too_large(merged.spec):
        try:
            arranged = arrange(merged.spec)
        except InvalidInput as error:
            later += error.problems
    later += _machine_problems(context, arranged, spec)
    places = _ProblemPlaces(written, spec, changes, merged.origins)
    return list(places.sort(later, broken))


def review_resume(run: JobSpec, changes: Changes, found: Sequence[Problem]) -> list[Problem]:
    """Problems with changes to a suspended run, at their flags. run: its spec without them."""
    origins = merge(run, changes.overrides)[0].origins
    return list(_ProblemPlaces(ParsedSpec(run), run, changes, origins).sort(found, changes.broken))


def _too_large(spec: JobSpec) -> bool:
    """Whether a spec exceeds the limits: planning it could take forever."""
    size = spec.most_nodes
    processes = size * spec.processes_per_node
    return size > MAX_NODES or processes > MAX_PROCESSES or len(spec.node_groups) > MAX_GROUPS


def _with_unique_groups(spec: JobSpec) -> JobSpec:
    """The spec with a unique name for each group."""
    names: set[str] = set()
    groups = []
    for number, group in enumerate(spec.node_groups):
        name = group.name if group.name and group.name not in names else f"group-{number}"
        names.add(name)
        groups.append(replace(group, name=name))
    return replace(spec, node_groups=tuple(groups))


def _code_problems(context: Context, spec: JobSpec, broken: Sequence[str]) -> list[Problem]:
    if not context.submission.has_files:
        return []  # found where they are
    if touched(_CODE, broken) or is_url(spec.artifact):
        spec = replace(spec, artifact=None, git=None)
    folder, known = context.submission.folder, not touched(_PROGRAM, broken)
    return check_gathering(context.home, spec, folder, entrypoint_known=known)


def _machine_problems(context: Context, arranged: Arranged, written: JobSpec) -> list[Problem]:
    """Problems on this machine. Policies are left out, as they make no difference to the machine,
    but for what an engine may be unable to do."""
    spec = arranged.spec
    if _too_large(spec):
        return []
    bare = replace(
        spec,
        name=spec.name or "job",
        node_groups=tuple(map(_without_policies, spec.node_groups)),
        success=SuccessPolicy(),
        failure=_without_conditions(spec.failure),
        checkpoint=None,
    )
    identity = Identity(new_id(), "job-?", new_id(), "job")
    arranged = replace(arranged, spec=bare)
    return plan_on_machine(context, arranged, identity, None, mount_paths(written))[1]


def _without_conditions(failure: FailurePolicy) -> FailurePolicy:
    rules = tuple(FailureRule(action=rule.action) for rule in failure.rules)
    return FailurePolicy(action=failure.action, strategy=failure.strategy, rules=rules)


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


def _key(problem: Problem) -> tuple[str, str]:
    return problem.path, problem.message


class _ProblemPlaces:
    """Finds the flag or the line of the spec for a problem of any stage."""

    def __init__(
        self, written: ParsedSpec, spec: JobSpec, changes: Changes, origins: Mapping[str, str]
    ) -> None:
        self._written = written
        self._spec = spec
        self._changes = changes
        self._changed = {
            _within_group(path) for path, origin in origins.items() if origin == "override"
        }
        self._numbers = {group.name: n for n, group in enumerate(spec.node_groups)}
        self._groups = {*self._numbers, *map(str, self._numbers.values())}

    def sort(self, later: Iterable[Problem], broken: Sequence[str]) -> Iterator[Problem]:
        """Each problem once, at its place, without those that follow from unreadable fields."""
        written = self._written
        # a flag may give the same field to the job and to the run
        of_flags = () if written.lines else self._changes.broken
        of_spec = [problem for problem in written.problems if problem.path not in of_flags]
        of_run: list[Problem] = []
        reported = set(map(_key, of_spec))
        broken = [self._path(path) if written.lines else path for path in broken]
        for found in later:
            problem = self._at_file_path(path_as_written(found, self._spec))
            if _key(problem) in reported or follows(problem.path, broken):
                continue
            reported.add(_key(problem))
            if self._is_of_run(problem.path):
                flag = self._flag(problem.path) or _as_typed(problem.path)
                of_run.append(problem._replace(path=flag))
                continue
            if not written.lines:
                problem = problem._replace(path=_as_typed(problem.path))
            of_spec.append(at_origin(problem, written.origins))
        yield from self._changes.problems
        yield from of_run
        # one line of the input may set several fields of the spec
        for problem in dict.fromkeys(in_order(of_spec, written.lines)):
            yield placed(problem, written.source, written.lines)

    def _is_of_run(self, path: str) -> bool:
        """Whether the problem is in a setting that the run changes, or a group only it names."""
        group = _GROUP.match(path)
        if group is not None and group[1] not in self._groups:
            return True
        return follows(_within_group(path), self._changed)

    def _flag(self, path: str) -> str:
        given = self._changes.flags
        names = self._names(path)
        of_path = (*names, _within_group(path), *_OPTION_PATHS.get(path, ()))
        flags = (given[whole] for whole in of_path if whole in given)
        around = (*names, _within_group(path))
        within = (flag for inner, flag in given.items() if follows(inner, around))
        return next(flags, "") or next(within, "")

    def _names(self, path: str) -> list[str]:
        """The path with its group by name, and by number."""
        group = _GROUP.match(path)
        if group is None:
            return [path]
        pairs = [(name, str(number)) for name, number in self._numbers.items()]
        both = next((pair for pair in pairs if group[1] in pair), (group[1],))
        return [f"node_groups[{name}].{path[group.end() :]}".rstrip(".") for name in both]

    def _at_file_path(self, problem: Problem) -> Problem:
        return problem._replace(path=self._path(problem.path)) if self._written.lines else problem

    def _path(self, path: str) -> str:
        """The path in the file, which has groups by number."""
        match = _GROUP.match(path)
        if match is None or match[1] not in self._numbers:
            return path
        return f"node_groups[{self._numbers[match[1]]}].{path[match.end() :]}".rstrip(".")


def _as_typed(path: str) -> str:
    """A path of what is not in a file: `command[2]` is the third word."""
    word = re.fullmatch(r"(command|args)\[(\d+)\]", path)
    return short_path(path) if word is None else f"{word[1]}, word {int(word[2]) + 1}"


def _within_group(path: str) -> str:
    """A path without its group."""
    return _GROUP.sub("", path)
