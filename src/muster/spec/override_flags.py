"""Overrides of a run from the flags of a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.secrets import HIDDEN, hide, names_secret
from muster.spec.models import Array
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes, decode_overrides
from muster.spec.partial_overrides import LISTS, RECORDS, Item, Part
from muster.spec.wording import short

# compiled when used: most runs have no --set, and compiling takes 2 ms
_PATH = r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*|\[[\w-]+\])*"
_STEP = r"[\w-]+"
_NAME = r"[\w.-]+"
#: Lists that a run can only replace as a whole.
_WHOLE_LISTS = ("command", "node_args", "depends_on")


def overrides_from_flags(**flags: Any) -> RunOverrides:
    """Like `changes_from_flags`. Raises InvalidInput with every problem."""
    return changes_from_flags(**flags).require_valid()


def changes_from_flags(
    *,
    nodes: Sequence[str] = (),
    env: Sequence[str] = (),
    env_files: Sequence[str] = (),
    framework_options: Mapping[str, Any] | None = None,
    mounts: Sequence[str] = (),
    sets: Sequence[str] = (),
    tags: Sequence[str] = (),
    arrays: Sequence[str] = (),
    sample: int | None = None,
    sample_seed: int | None = None,
    after_runs: Sequence[str] = (),
    args: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: Any,
) -> Changes:
    """Read the flags of a command line.

    nodes: `4` or `workers=2`. env: `K=V`, `workers:K=V`, or `K` alone, whose value is taken from
    `environ`. env_files: files of such variables, over which `env` takes precedence. mounts: `SRC`,
    `SRC:PATH`, `SRC:PATH:ro`. tags: `K=V`. sets: `PATH=VALUE`, with the value in YAML. arrays:
    `NAME=VALUES`, as of `spec.arrays.parse_values`, or a file. sample, sample_seed: of the array.
    after_runs: names of runs. settings: the options named in `override_models.FLAGS`; None or
    False: not given. All other flags take precedence over `sets`.
    """
    flags = _Flags()
    for text in sets:
        flags.set(text)
    for text in nodes:
        flags.nodes(text)
    for path in env_files:
        flags.env_file(path, environ or {})
    for text in env:
        flags.env(text, environ or {})
    if mounts:
        flags.mounts(mounts)
    if arrays:
        flags.arrays(arrays)
    for name, value in (("sample", sample), ("sample_seed", sample_seed)):
        flags.sample(name, value)
    for name, value in settings.items():
        flags.setting(name, value)
    for name, value in (framework_options or {}).items():
        flags.put(f"--option {name}", ["framework_options", name], value)
    for text in tags:
        flags.tag(text)
    if after_runs:
        flags.put(f"--after {' '.join(after_runs)}", ["after"], list(after_runs))
    if args is not None:
        flags.put("--", ["args"], list(args))
    return flags.changes()


class _Flags:
    """Flags as plain data for `decode`, and the flag that gave each path.

    Messages name a flag as it was typed, except for the value of an environment variable.
    """

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.broken: list[str] = []
        self.items: list[Item] = []
        self.parts: list[Part] = []
        self.flags: dict[str, str] = {}

    def changes(self) -> Changes:
        """The overrides, decoded."""
        found: list[Problem] = []
        overrides = None
        if self.data:  # most runs change nothing, and decoding takes time
            overrides = decode_overrides(self.data, found)
        return Changes(
            overrides or RunOverrides(),
            problems=(*self.problems, *(self._at_flag(problem) for problem in found)),
            broken=(*self.broken, *(problem.path for problem in found)),
            flags=self.flags,
            items=tuple(self.items),
            parts=tuple(self.parts),
        )

    def put(self, flag: str, steps: Sequence[str], value: Any) -> None:
        """Set the value at a path. flag: for messages; "" if the path does as well."""
        where = self.data
        for number, step in enumerate(steps[:-1], 1):
            inner = where.setdefault(step, {})
            if not isinstance(inner, dict):
                path = _join(steps[:number])
                other = (self.flags[p] for p in _around(path) if p in self.flags)
                text = f"{path} was given a value by {next(other, 'another flag')}"
                self.problems.append(Problem(flag or _join(steps), text, "keep only one of them"))
                return
            where = inner
        where[steps[-1]] = value
        if flag:
            self.flags[_join(steps)] = flag

    def setting(self, name: str, value: Any) -> None:
        """One of `override_models.FLAGS`."""
        if value is None or value is False:
            return
        flag = f"--{name.replace('_', '-')}"
        if name == "max_runtime" and isinstance(value, str):
            from muster.spec.quantities import is_bare_number, no_unit

            if is_bare_number(value):
                self.problems.append(Problem(f"{flag} {value}", *no_unit(value)))
                self.broken.append(name)
                return
        bare = value is True or name == "run_name"  # which is text of any length
        self.put(flag if bare else f"{flag} {value}", [name], value)

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
            hint = f"write {name}=VALUE, or export it"
            problem = f"{name} is not set in your environment"
            self.problems.append(Problem("--env", problem, hint))
        else:
            value = value if equals else environ[name]
            self.put(f"--env {left}", [*_group(group), "env", name], value)

    def env_file(self, path: str, environ: Mapping[str, str]) -> None:
        from muster.spec.env_file import read_env_file

        try:
            found = read_env_file(path, environ)
        except InvalidInput as error:
            self.problems += error.problems
            return
        for entry in found:
            self.put(f"{path}:{entry.line}: {entry.name}", ["env", entry.name], entry.value)

    def mounts(self, texts: Sequence[str]) -> None:
        for text in texts:
            # a host has a dot, or is meant to be written nfs://HOST: more often a folder is missing
            host, colon, path = text.removesuffix(":ro").removesuffix(":rw").partition(":/")
            if colon and not os.path.isdir(host) and not set("./:") & set(host + path[:1]):
                problem = f"there is no folder {short(host)} here"
                hint = f"create it, or for an NFS export write nfs://{host}/{path}"
                self.problems.append(Problem(f"--mount {text}", problem, hint))
                self.broken.append("mounts")
        self.put("--mount", ["mounts"], [_mount(text) for text in texts])
        for number, text in enumerate(texts):
            self.flags[f"mounts[{number}]"] = f"--mount {text}".strip()

    def tag(self, text: str) -> None:
        key, equals, value = text.partition("=")
        if equals and key:
            self.put(f"--tag {key}", ["tags", key], value)
        else:
            self.problems.append(Problem("--tag", f"{short(text)} is not a tag", "write K=V"))

    def arrays(self, texts: Sequence[str]) -> None:
        parameters: dict[str, str] = {}
        files: list[str] = []
        for text in texts:
            name, equals, values = text.partition("=")
            flag = f"--array {name}={hide(name, values)}"
            if not equals:
                files.append(text)
            elif name in parameters:
                problem = f"{name} is given twice"
                self.problems.append(Problem(flag, problem, "write all its values once"))
            else:
                parameters[name] = values
                self.flags[f"array.parameters.{name}"] = flag
        if len(files) > 1:
            problem = f"{files[0]} is a file, too"
            hint = "write their lines into one file, or NAME=VALUES"
            self.problems.append(Problem(f"--array {files[1]}", problem, hint))
            self.broken.append("array")
            return
        file = {"file": files[0]} if files else {}
        self.put("--array", ["array"], {"parameters": parameters, **file})
        if files:
            self.flags["array.file"] = f"--array {files[0]}"

    def sample(self, name: str, value: int | None) -> None:
        if value is None:
            return
        flag = f"--{name.replace('_', '-')} {value}"
        if "array" not in self.flags:  # the job's array stays otherwise
            self._note_part("", ["array", name], "array")
        self.put(flag, ["array", name], value)

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
            self.problems.append(Problem("--set", f"{path} is not a setting", hint))
            return
        inner = steps[2:] if steps[0] == "node_groups" else steps
        if inner[0] == "run_name" or {"env", "node_env", "tags"} & {*inner[:-1]}:
            self.put(f"--set {path}", steps, value)  # text, as for --env and --tag
            return
        flag = f"--set {path}={_shown(steps[-1], value)}"
        try:
            # without the group, whose name may be env
            root = re.sub(r"^node_groups[.\[][\w-]+\]?\.?", "", path)
            data = load(value, "--set", root)[0] if value else ""
        except InvalidInput as error:
            self.problems += [Problem(flag, p.message, p.hint) for p in error.problems]
            self.broken.append(_join(steps))
        else:
            self._set(flag, steps, data)

    def _set(self, flag: str, steps: Sequence[str], value: Any) -> None:
        group, inner = (steps[1], steps[2:]) if steps[0] == "node_groups" else ("", steps)
        if inner[0] in LISTS and len(inner) > 1:
            self.items.append(Item(flag, group, inner[0], inner[1], inner[2:], value))
            return
        number = next((n for n, step in enumerate(inner) if n and step.isdecimal()), None)
        if number is not None and inner[0] in (*RECORDS, *_WHOLE_LISTS):
            of = _join([*steps[: len(steps) - len(inner)], *inner[:number]])
            text = "items of this list cannot be set one by one"
            self.problems.append(Problem(flag, text, f"set the whole list: --set {of}=[...]"))
            self.broken.append(of)
            return
        if inner[0] == "array" and len(inner) == 2 and inner[1] not in Array.__struct_fields__:
            steps = [*steps[:-1], "parameters", steps[-1]]
            inner = steps[-3:]
        if inner[0] in RECORDS:
            self._note_part(group, inner, _join(steps[: len(steps) - len(inner) + 1]))
        self.put(flag, steps, value)

    def _note_part(self, group: str, inner: Sequence[str], record: str) -> None:
        """Record that a part of a record is given. record: its path. If the whole record was given
        before, the part has been set in it."""
        if len(inner) == 1:
            kept = [part for part in self.parts if (part.group, part.record) != (group, inner[0])]
            self.parts = kept
        elif record not in self.flags:
            self.parts.append(Part(group, inner[0], tuple(inner[1:])))

    def _at_flag(self, problem: Problem) -> Problem:
        """The problem at the flag that caused it, instead of a path that the user did not type, or
        at a place in the file that the flag names."""
        if problem.source:
            return problem._replace(path="")
        for path in _around(problem.path):
            if path in self.flags:
                rest = problem.path[len(path) :].lstrip(".")
                text = f"{rest}: {problem.message}" if rest else problem.message
                return problem._replace(path=self.flags[path], message=text)
        inside = [flag for path, flag in self.flags.items() if path.startswith(problem.path)]
        return problem._replace(path=inside[0]) if inside else problem


def _shown(name: str, value: str) -> str:
    """The value of --set in messages, without secrets. name: of its setting."""
    if value.lstrip()[:1] in ("{", "[") and any(map(names_secret, re.findall(_NAME, value))):
        return HIDDEN
    return hide(name, value)


def _group(name: str) -> list[str]:
    return ["node_groups", name] if name else []


def _join(steps: Sequence[str]) -> str:
    """The path as `decode` writes it: with group names in brackets."""
    if steps[0] == "node_groups" and len(steps) > 1:
        return ".".join([f"node_groups[{steps[1]}]", *steps[2:]])
    return ".".join(steps)


def _around(path: str) -> Iterator[str]:
    """The path and its parents, innermost first."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]


def _mount(text: str) -> dict[str, Any]:
    mount: dict[str, Any] = {}
    if text.endswith((":ro", ":rw")):
        mount["read_only"] = text.endswith(":ro")
        text = text[:-3]
    # a colon may also be part of a URL (s3://), an NFS export (host:/path), or volume:NAME
    source, colon, path = text.rpartition(":")
    is_source = "/" in source or source.startswith("volume:") or os.path.isdir(source)
    if colon and not path.startswith("//") and is_source:
        mount["path"] = path
        text = source
    return {"source": text, **mount}


def options_from_flags(flags: Sequence[str]) -> dict[str, Any]:
    """Name -> value, the values in YAML. Raises InvalidInput."""
    if not flags:
        return {}  # without the YAML library, which takes longer to load than all else
    from muster.spec.yaml import load

    options: dict[str, Any] = {}
    problems = []
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not name.isidentifier():
            problems.append(
                Problem("--option", f"{short(flag)} is not NAME=VALUE", "as in threads=2")
            )
            continue
        try:
            options[name] = load(text, "--option", name)[0] if text else ""
        except InvalidInput as error:
            problems += [Problem(f"--option {flag}", p.message, p.hint) for p in error.problems]
    if problems:
        raise InvalidInput(*problems)
    return options
