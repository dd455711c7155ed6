"""What a run changes of its Job, from flags or from Python."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from muster.errors import InvalidInput, Problem
from muster.spec.decode import salvage
from muster.spec.items import LISTS, Item
from muster.spec.override_models import RunOverrides
from muster.spec.parts import RECORDS, Part
from muster.spec.reader import absolute_paths
from muster.spec.wording import short

# not compiled here: most runs set nothing, and compiling costs each of them 2 ms
_PATH = r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[[\w-]+\])*"
_STEP = r"[\w-]+"
#: Lists of which a run replaces all: their items have no meaning of their own.
_WHOLE_LISTS = ("command", "node_args", "depends_on")


class Changes(Struct, frozen=True):
    """What a run changes, as it was asked for: what could be read, and what is wrong with the rest.

    broken: paths of what could not be read, and is left out. said: path -> the flag it is from.
    items: of single items of the job's lists; parts: of records, which are given in part.
    `items.with_items` makes both whole.
    """

    overrides: RunOverrides = RunOverrides()
    problems: tuple[Problem, ...] = ()
    broken: tuple[str, ...] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    parts: tuple[Part, ...] = ()

    def whole(self) -> RunOverrides:
        """The overrides. Raises InvalidInput with every problem."""
        unmade = (
            Problem(item.flag, "there is no job here whose list it is of", f"set {item.list_path}")
            for item in self.items
        )
        if problems := [*self.problems, *unmade]:
            raise InvalidInput(*problems)
        return self.overrides


def changes_from_mapping(data: Mapping[str, Any]) -> Changes:
    """From plain data."""
    problems: list[Problem] = []
    overrides = salvage(RunOverrides, _absolute(data), problems) or RunOverrides()
    return Changes(overrides, tuple(problems), tuple(problem.path for problem in problems))


def overrides_from_mapping(data: Mapping[str, Any]) -> RunOverrides:
    """From plain data. Raises InvalidInput with every problem."""
    return changes_from_mapping(data).whole()


def overrides_from_flags(**flags: Any) -> RunOverrides:
    """As `changes_from_flags`. Raises InvalidInput with every problem."""
    return changes_from_flags(**flags).whole()


def changes_from_flags(
    *,
    nodes: Sequence[str] = (),
    env: Sequence[str] = (),
    max_runtime: str | None = None,
    max_restarts: int | None = None,
    suspend: bool = False,
    processes_per_node: int | None = None,
    network: str | None = None,
    framework_options: Mapping[str, Any] | None = None,
    mounts: Sequence[str] = (),
    sets: Sequence[str] = (),
    run_name: str | None = None,
    tags: Sequence[str] = (),
    args: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Changes:
    """From a command line.

    nodes: `4` or `workers=2`. env: `K=V`, `workers:K=V`, or `K` alone, taken from `environ`.
    mounts: `SRC`, `SRC:PATH`, `SRC:PATH:ro`. tags: `K=V`. sets: `PATH=VALUE`, the value in YAML.
    The flags with a name of their own win over `sets`.
    """
    flags = _Flags()
    for text in sets:
        flags.set(text)
    for text in nodes:
        flags.nodes(text)
    for text in env:
        flags.env(text, environ or {})
    if mounts:
        flags.mounts(mounts)
    for name, flag, value in (
        ("max_runtime", f"--max-runtime {max_runtime}", max_runtime),
        ("max_restarts", f"--max-restarts {max_restarts}", max_restarts),
        (
            "processes_per_node",
            f"--processes-per-node {processes_per_node}",
            processes_per_node,
        ),
        ("network", f"--network {network}", network),
        ("run_name", "--run-name", run_name),
    ):
        if value is not None:
            flags.put(flag, [name], value)
    for name, value in (framework_options or {}).items():
        flags.put(f"--option {name}", ["framework_options", name], value)
    for text in tags:
        flags.tag(text)
    if suspend:
        flags.put("--suspend", ["suspend"], True)
    if args is not None:
        flags.put("--", ["args"], list(args))
    found: list[Problem] = []
    overrides = RunOverrides()
    if flags.data:  # most runs change nothing, and to look at each field takes a while
        overrides = salvage(RunOverrides, _absolute(flags.data), found) or overrides
    return Changes(
        overrides,
        problems=(*flags.problems, *(flags.placed(problem) for problem in found)),
        broken=(*flags.broken, *(problem.path for problem in found)),
        said=flags.said,
        items=tuple(flags.items),
        parts=tuple(flags.parts),
    )


class _Flags:
    """Flags as the data `decode` reads, and which flag said what.

    A flag is named in messages as it was typed, but for the value of an environment variable.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.broken: list[str] = []
        self.items: list[Item] = []
        self.parts: list[Part] = []
        self.said: dict[str, str] = {}

    def put(self, flag: str, steps: Sequence[str], value: Any) -> None:
        """flag: as what it is told; "" if the path is as good a name."""
        where = self.data
        for number, step in enumerate(steps[:-1], 1):
            inner = where.setdefault(step, {})
            if not isinstance(inner, dict):
                path = _join(steps[:number])
                by = next((self.said[p] for p in _around(path) if p in self.said), "another flag")
                text = f"{path} was given a value of its own by {by}"
                self.problems.append(Problem(flag or _join(steps), text, "keep the one you mean"))
                return
            where = inner
        where[steps[-1]] = value
        if flag:
            self.said[_join(steps)] = flag

    def nodes(self, text: str) -> None:
        group, equals, count = text.rpartition("=")
        if not (count.isascii() and count.isdigit() and len(count) < 10) or (equals and not group):
            problem = f"{short(text)} is not a number of nodes"
            self.problems.append(Problem("--nodes", problem, "write 4 or workers=4"))
            self.broken.append(_join([*_group(group), "nodes"]))
            return
        self.put(f"--nodes {text}", [*_group(group), "nodes"], int(count))

    def env(self, text: str, environ: Mapping[str, str]) -> None:
        left, equals, value = text.partition("=")
        group, colon, name = left.rpartition(":")
        if not name or (colon and not group):
            problem = f"{short(left)} names no {'group' if name else 'variable'}"
            self.problems.append(Problem("--env", problem, "write K=V or workers:K=V"))
        elif not equals and name not in environ:
            hint = f"write {name}=VALUE, or set it before"
            problem = f"{name} is not set in your environment"
            self.problems.append(Problem("--env", problem, hint))
        else:
            value = value if equals else environ[name]
            self.put(f"--env {left}", [*_group(group), "env", name], value)

    def mounts(self, texts: Sequence[str]) -> None:
        self.put("--mount", ["mounts"], [_mount(text) for text in texts])
        for number, text in enumerate(texts):
            self.said[f"mounts[{number}]"] = f"--mount {text}".strip()

    def tag(self, text: str) -> None:
        key, equals, value = text.partition("=")
        if equals and key:
            self.put(f"--tag {key}", ["tags", key], value)
        else:
            self.problems.append(Problem("--tag", f"{short(text)} is no tag", "write K=V"))

    def set(self, text: str) -> None:
        from muster.spec.yaml import load

        path, equals, value = text.partition("=")
        if not equals or not re.fullmatch(_PATH, path):
            problem = f"{short(text)} is not PATH=VALUE"
            meant = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)
            right = equals and re.fullmatch(_PATH, meant)
            hint = f"write {meant}=..." if right else "as in resources.cpus=2"
            self.problems.append(Problem("--set", problem, hint))
            return
        steps = re.findall(_STEP, path)
        if steps[0] == "node_groups" and len(steps) < 3:
            hint = "as in node_groups.NAME.nodes=2"
            self.problems.append(Problem("--set", f"{path} names no setting", hint))
            return
        inner = steps[2:] if steps[0] == "node_groups" else steps
        if inner[0] == "run_name" or {"env", "node_env", "tags"} & {*inner[:-1]}:
            self.put(f"--set {path}", steps, value)  # text, as with --env and --tag
            return
        try:
            # without the group, which may be called env
            root = re.sub(r"^node_groups[.\[][\w-]+\]?\.?", "", path)
            data = load(value, "--set", root)[0] if value else ""
        except InvalidInput as error:
            self.problems += [Problem(f"--set {text}", p.message, p.hint) for p in error.problems]
            self.broken.append(_join(steps))
        else:
            self._set(f"--set {text}", steps, data)

    def _set(self, flag: str, steps: Sequence[str], value: Any) -> None:
        group, inner = (steps[1], steps[2:]) if steps[0] == "node_groups" else ("", steps)
        if inner[0] in LISTS and len(inner) > 1:
            self.items.append(Item(flag, group, inner[0], inner[1], inner[2:], value))
            return
        number = next((n for n, step in enumerate(inner) if n and step.isdecimal()), None)
        if number is not None and inner[0] in (*RECORDS, *_WHOLE_LISTS):
            of = _join([*steps[: len(steps) - len(inner)], *inner[:number]])
            text, hint = (
                "an item of that list cannot be set alone",
                f"set all of it: --set {of}=[...]",
            )
            self.problems.append(Problem(flag, text, hint))
            self.broken.append(of)
            return
        if inner[0] in RECORDS:
            self._note_part(group, inner, _join(steps[: len(steps) - len(inner) + 1]))
        self.put(flag, steps, value)

    def _note_part(self, group: str, inner: Sequence[str], record: str) -> None:
        """record: the path of all of it. Once that is given, parts are of what was given."""
        if len(inner) == 1:
            kept = [part for part in self.parts if (part.group, part.record) != (group, inner[0])]
            self.parts = kept
        elif record not in self.said:
            self.parts.append(Part(group, inner[0], tuple(inner[1:])))

    def placed(self, problem: Problem) -> Problem:
        """The problem with the flag it is of, instead of a path into data nobody wrote."""
        for path in _around(problem.path):
            if path in self.said:
                rest = problem.path[len(path) :].lstrip(".")
                text = f"{rest}: {problem.message}" if rest else problem.message
                return Problem(self.said[path], text, problem.hint)
        said = [flag for path, flag in self.said.items() if path.startswith(problem.path)]
        return problem._replace(path=said[0]) if said else problem


def _group(name: str) -> list[str]:
    return ["node_groups", name] if name else []


def _join(steps: Sequence[str]) -> str:
    """As `decode` writes paths: groups by name in brackets."""
    if steps[0] == "node_groups" and len(steps) > 1:
        return ".".join([f"node_groups[{steps[1]}]", *steps[2:]])
    return ".".join(steps)


def _around(path: str) -> Iterator[str]:
    """The path and all it is in, from the inside out."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def _absolute(data: Mapping[str, Any]) -> Any:
    made = absolute_paths(data, Path.cwd())
    groups = made.get("node_groups")
    if isinstance(groups, Mapping):
        made["node_groups"] = {
            name: absolute_paths(group, Path.cwd()) for name, group in groups.items()
        }
    return made


def _mount(text: str) -> dict[str, Any]:
    mount: dict[str, Any] = {}
    if text.endswith((":ro", ":rw")):
        mount["read_only"] = text.endswith(":ro")
        text = text[:-3]
    # a colon may also belong to a URL (s3://) or an export (host:/path): what is there decides
    source, colon, path = text.rpartition(":")
    if colon and not path.startswith("//") and ("/" in source or os.path.isdir(source)):
        mount["path"] = path
        text = source
    return {"source": text, **mount}
