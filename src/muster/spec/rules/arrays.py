"""Rules for arrays: their parameters, and how many of their replicas run. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from muster.errors import Problem
from muster.secrets import hide
from muster.spec.arrays import (
    MAX_COMBINATIONS,
    MAX_SETS,
    combinations,
    distributions,
    names_of,
    row_names,
    variable_of,
)
from muster.spec.models import Array, JobSpec, NodeGroup
from muster.spec.placeholders import parameters_in
from muster.spec.policies import EarlySuccess
from muster.spec.replica_numbers import parse_numbers
from muster.spec.rules.structure import groups_of
from muster.spec.shell import SHELLS, literal_parts, script_index
from muster.spec.wording import suggestion

#: What looks like the value of a parameter or its variable: `${lr}`, `${params.lr}`,
#: `${MUSTER_PARAM_LR}` or `$MUSTER_PARAM_LR`.
_UNFILLED = r"(?<!\$)\$(?:\{(params\.[\w.-]+)\}|\{([\w.-]+)\}|(MUSTER_PARAM_\w+))"


def array_problems(spec: JobSpec) -> Iterator[Problem]:
    """Problems of all groups."""
    first = ""
    for prefix, group in groups_of(spec):
        if group.array is not None and first:
            text = f"group {first} has an array already"
            hint = "start another run for the second array"
            yield Problem(f"{prefix}array", text, hint)
        elif group.array is not None:
            first = group.name
            problems = [*_parameters(f"{prefix}array", group.array)]
            yield from problems or _placeholders(prefix, spec, group, names_of(group.array))
            if problems:
                continue  # the number of its replicas is unknown
        yield from _replicas(prefix, group)


def _parameters(path: str, array: Array) -> Iterator[Problem]:
    """Problems with the parameters of an array, and with the number of their sets."""
    if not names_of(array):
        if array.file is not None:
            yield Problem(f"{path}.file", f"{array.file} was not read", "give rows or parameters")
        elif array.sample is not None or array.sample_seed:
            name = "sample_seed" if array.sample is None else "sample"
            hint = "add --array lr=0.1,0.01, or parameters: {lr: [0.1, 0.01]}"
            yield Problem(f"{path}.{name}", "there is no array to draw from", hint)
        else:
            yield Problem(path, "has no parameters", "write {lr: [0.1, 0.01]}")
        return
    yield from _names(path, array)
    drawn = distributions(array)
    if drawn and array.sample is None:
        name = drawn[0]
        text = f"{hide(name, array.parameters[name])} needs the number of sets to draw"
        yield Problem(f"{path}.parameters.{name}", text, "add sample (--sample 50)")
    if array.sample_seed and array.sample is None:
        text = "is the seed of a sample, and there is none"
        yield Problem(f"{path}.sample_seed", text, "add sample (--sample 50)")
    total = combinations(array)
    if array.sample is not None and not drawn and total > MAX_COMBINATIONS:
        text = f"a sample of {total:,} combinations is not possible"
        yield Problem(f"{path}.sample", text, "give the parameters fewer values")
    elif array.sample is not None and not drawn and array.sample > total:
        text = f"{array.sample:,} sets cannot be drawn from {total:,}"
        yield Problem(f"{path}.sample", text, f"at most {total:,}")
    elif array.size > MAX_SETS:
        text = f"{array.size:,} parameter sets, {MAX_SETS:,} are allowed"
        hint = "give fewer values, or a sample of them (--sample 100)"
        yield Problem(path, text, hint)


def _names(path: str, array: Array) -> Iterator[Problem]:
    """Names that are in a file and among the parameters, or that have the same variable."""
    of_rows = row_names(array)
    variables: dict[str, str] = {}
    for name in names_of(array):
        place = path if name in of_rows else f"{path}.parameters.{name}"
        variable = variable_of(name)
        if name in of_rows and name in array.parameters:
            if name not in variables.values():
                where = array.file or "rows"
                text = f"{name} is also a parameter of {where}"
                yield Problem(f"{path}.parameters.{name}", text, "give it once")
        elif variable in variables:
            text = f"{name} and {variables[variable]} would both be {variable}"
            yield Problem(place, text, "rename one of them")
        variables.setdefault(variable, name)


def _placeholders(
    prefix: str, spec: JobSpec, group: NodeGroup, names: Sequence[str]
) -> Iterator[Problem]:
    """Placeholders of parameters that the array does not have, and words that are meant as one.
    Those of node_args and node_env are checked with all others."""
    command = group.command or spec.command or ()
    # a shell, also as the program of `env` or `ssh`, expands variables
    has_shell = any(word.rpartition("/")[2] in SHELLS for word in command)
    for name in ("command", "args"):
        own = getattr(group, name)
        path = f"{prefix}{name}" if own is not None else name
        words = own if own is not None else getattr(spec, name)
        for number, word in enumerate(words or ()):
            for parameter in parameters_in(word):
                if parameter not in names:
                    text = f"the array has no parameter {parameter}"
                    hint = suggestion(parameter, names)
                    if not parameter:
                        text, hint = "${param.} names no parameter", _write(names)
                    yield Problem(f"{path}[{number}]", text, hint)
            for given, parameter in _meant(word, names) if not has_shell else ():
                text = f"{given} is not replaced: no shell runs"
                yield Problem(f"{path}[{number}]", text, _write([parameter]))
        script = script_index(words or ()) if name == "command" else None
        if script is not None:
            yield from _unexpanded(f"{path}[{script}]", words[script])


def _unexpanded(path: str, script: str) -> Iterator[Problem]:
    """Placeholders of parameters where a shell expands nothing: it gets them as variables, so that
    values do not become syntax of the script."""
    for part, where in literal_parts(script) if "{param." in script else ():
        for parameter in dict.fromkeys(parameters_in(part)):
            given = f"${{param.{parameter}}}"
            hint = f"end the quotes before it: '\"{given}\"'"
            if where != "single quotes":
                hint = "remove the quotes of its end"
            yield Problem(path, f"{given} is in {where}: the shell does not expand it", hint)


def _meant(word: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Parts of a word that a program would get as they are, each with the parameter that is
    probably meant. Code has none: its language may expand them."""
    if "$" not in word or re.search(r"[\s'\"()]", word):
        return
    variables = {variable_of(name): name for name in names}
    for match in re.finditer(_UNFILLED, word, re.ASCII):
        text = match[1] or match[2] or match[3]
        if match[1] is None and text in variables:
            yield match[0], variables[text]
        elif match[3] is None and text.removeprefix("params.") in names:
            yield match[0], text.removeprefix("params.")


def _write(names: Sequence[str]) -> str:
    return f"write ${{param.{names[0]}}}"


def unfilled(prefix: str, group: NodeGroup) -> Iterator[Problem]:
    """Placeholders of parameters that are not replaced."""
    for name in ("command", "args") if group.array is None else ():
        for number, word in enumerate(getattr(group, name) or ()):
            for parameter in parameters_in(word):
                text = f"${{param.{parameter}}} is the parameter of an array, and there is none"
                hint = f"add --array {parameter or 'NAME'}=...; $${{param.{parameter}}} is the text"
                yield Problem(f"{prefix}{name}[{number}]", text, hint)
    for variable, value in group.env.items():
        for parameter in parameters_in(value):
            text = f"${{param.{parameter}}} is not replaced in env"
            hint = "use node_env, or $" + variable_of(parameter) + " in the program"
            yield Problem(f"{prefix}env.{variable}", text, hint)


def _replicas(prefix: str, group: NodeGroup) -> Iterator[Problem]:
    """Problems with the number of replicas and with settings of it."""
    array, replicas = group.array, group.first_replicas
    if array is not None and group.replicas not in (1, replicas):
        text = f"{group.replicas:,} differs from the number of parameter sets, {replicas:,}"
        yield Problem(f"{prefix}replicas", text, "leave it out")
    for name in ("array", "parallelism"):
        if group.max_replicas is not None and getattr(group, name) is not None:
            text = f"conflicts with {name}: an array cannot be scaled"
            yield Problem(f"{prefix}max_replicas", text, "remove one of them")
            break
    if group.is_array and group.nodes * replicas > MAX_SETS and replicas <= MAX_SETS:
        text = f"{group.nodes * replicas:,} nodes in all replicas, {MAX_SETS:,} are allowed"
        yield Problem(f"{prefix}nodes", text, "start fewer replicas")
    elif group.is_array and replicas > MAX_SETS:
        text = f"{replicas:,} replicas, {MAX_SETS:,} are allowed"
        yield Problem(f"{prefix}replicas", text, "start several runs")
    if group.max_failed is not None and group.max_failed > replicas:
        text = f"{group.max_failed:,} replicas may fail, but {_there_are(replicas)}"
        yield Problem(f"{prefix}max_failed", text, f"at most {replicas:,}")
    if group.only is not None:
        yield from _only(f"{prefix}only", group, replicas)
    for name in ("total_retries", "early_success"):
        if not group.is_array and getattr(group, name) not in (None, ()):
            yield Problem(f"{prefix}{name}", *_no_array("applies to"))
    for number, enough in enumerate(group.early_success):
        yield from _early_success(f"{prefix}early_success[{number}]", enough, replicas)


def _there_are(replicas: int) -> str:
    return f"there are {replicas:,}" if replicas > 1 else "there is only 1"


def _early_success(path: str, enough: EarlySuccess, replicas: int) -> Iterator[Problem]:
    chosen = range(replicas), *parse_numbers(enough.replicas or "0")
    if enough.replicas is None and enough.count is None:
        text = "names neither replicas nor their count"
        yield Problem(path, text, "write {replicas: 0-3}, {count: 2} or both")
        return
    if enough.replicas is not None and chosen[-1].stop > replicas:
        text = f"there is no replica {chosen[-1].stop - 1}: the array has {replicas:,}"
        yield Problem(f"{path}.replicas", text, f"numbers go from 0 to {replicas - 1}")
    most = replicas if enough.replicas is None else sum(map(len, chosen[1:]))
    if enough.count is not None and enough.count > most:
        text = f"{enough.count:,} replicas must succeed, of {most:,}"
        yield Problem(f"{path}.count", text, f"at most {most:,}")


def _no_array(verb: str) -> tuple[str, str]:
    return f"{verb} an array; this job has none", "add array (--array) or parallelism"


def _only(path: str, group: NodeGroup, replicas: int) -> Iterator[Problem]:
    if not group.is_array:
        yield Problem(path, *_no_array("selects replicas of"))
        return
    last = parse_numbers(group.only or "")[-1].stop - 1
    if last >= replicas:
        text = f"there is no replica {last}: the array has {replicas:,}"
        yield Problem(path, text, f"numbers go from 0 to {replicas - 1}")
