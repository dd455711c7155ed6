"""Users' arguments for a framework's programs (`scheduler_args`, ADS's startOptions) that Muster
also sets.

Checks and other nodes use Muster's values: they would not find a port that only the program
knows. Such an argument is therefore adopted as the framework's option, or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Problem
from muster.spec.wording import Refused as WrongValue


class Adopted(Struct, frozen=True):
    """An argument with the same meaning as an option of the framework."""

    names: tuple[str, ...]
    option: str
    """Name of the framework's option."""
    parse: Callable[[str], str] = str
    """Converts the argument's value to the option's. Raises wording.Refused."""


class Dropped(Struct, frozen=True):
    """A switch that only confirms what Muster does."""

    names: tuple[str, ...]


class Refused(Struct, frozen=True):
    """An argument that cannot be used."""

    names: tuple[str, ...]
    why: str
    hint: str = "leave it out"
    """What to write instead."""
    allowed: tuple[str, ...] = ()
    """Values that only confirm what Muster does."""
    switch: bool = False
    """Whether it has no value."""


Rule = Adopted | Dropped | Refused


class Program(Struct, frozen=True):
    """A program that gets arguments from the user."""

    field: str
    """The option with these arguments."""
    rules: tuple[Rule, ...]
    """Rules for arguments that Muster also sets."""


def adopt_arguments(
    options: Any,
    programs: Iterable[Program],
    problems: list[Problem],
    fixed: Mapping[str, tuple[str, str]],
) -> Any:
    """Move adopted arguments of programs to the framework's options.

    problems: extended with those of arguments. fixed: option -> where the user has set it
    elsewhere, and its value. Giving the same value twice is allowed.
    """
    for program in programs:
        path = f"framework_options.{program.field}"
        given, rest = _split(path, getattr(options, program.field), program.rules, problems)
        for option, (name, text) in given.items():
            made = _with_option(options, option, text, path, name, problems)
            if made is None:
                continue
            value, there = getattr(made, option), getattr(options, option)
            if option in fixed:
                where, fixed_text = fixed[option]
                if fixed_text != str(value):
                    problems.append(_conflict(path, name, value, where, fixed_text))
            elif there != value and not _is_default(options, option):
                where = f"framework_options.{option}"
                problems.append(_conflict(path, name, value, where, there))
            else:
                options = made
        options = replace(options, **{program.field: rest})
    return options


def _conflict(path: str, name: str, value: Any, where: str, there: Any) -> Problem:
    text = f"{name} is {value}, but {where} is {there}"
    return Problem(path, text, "leave out one of them, or set both to the same")


def _split(
    path: str, words: Sequence[str], rules: Sequence[Rule], problems: list[Problem]
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Adopted arguments (option -> name and value; the last one counts, as for the program), and
    the others."""
    by_name = {name: rule for rule in rules for name in rule.names}
    given: dict[str, tuple[str, str]] = {}
    rest: list[str] = []
    end = words.index("--") if "--" in words else len(words)
    for word, value in _options(words[:end], by_name):
        name = word.partition("=")[0]
        match by_name.get(name):
            case None:
                rest.append(word)
            case Dropped():
                pass
            case Refused(switch=True) as rule:
                problems.append(Problem(path, f"{name}: {rule.why}", rule.hint))
            case _ if value is None:
                problems.append(Problem(path, f"{name} has no value", "give one, or leave it out"))
            case Refused() as rule:
                if value not in rule.allowed:
                    problems.append(Problem(path, f"{name}: {rule.why}", rule.hint))
            case Adopted() as rule:
                try:
                    given[rule.option] = (name, rule.parse(value))
                except WrongValue as error:
                    problems.append(Problem(path, f"{name}: {error.message}", error.hint))
    return given, (*rest, *words[end:])


def _options(words: Sequence[str], by_name: Mapping[str, Rule]) -> Iterator[tuple[str, str | None]]:
    """Arguments, with the values of known options: `--port 1`, `--port=1`, `-p 1`, `-p1`."""
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name not in by_name and word[:2] in by_name and not word.startswith("--"):
            yield word[:2], word[2:]
            continue
        rule = by_name.get(name)
        switch = isinstance(rule, Dropped) or (isinstance(rule, Refused) and rule.switch)
        if rule is None or switch:
            yield word, None
        elif equals:
            yield name, value
        else:
            yield name, left.pop(0) if left else None


def _is_default(options: Any, option: str) -> bool:
    kind = type(options)
    at = kind.__struct_fields__.index(option) - len(kind.__struct_fields__)
    default: Any = kind.__struct_defaults__[at]
    return bool(getattr(options, option) == default)


def _with_option(
    options: Any, option: str, text: str, path: str, name: str, problems: list[Problem]
) -> Any:
    """The options with one of them decoded from text. Returns None and extends `problems` if the
    value is invalid."""
    from muster.spec.decode import decode

    found: list[Problem] = []
    read = decode(type(options), {option: _plain(text)}, found, path)
    if read is None or found:
        hint = f"give a value of framework_options.{option}"
        problems += [Problem(path, f"{name}: {p.message}", p.hint or hint) for p in found]
        return None
    return replace(options, **{option: getattr(read, option)})


def _plain(text: str) -> Any:
    """The text as a number, boolean or text, as in YAML."""
    if text.lstrip("-").isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)
