"""Options that owners add to the words of a framework's own programs (`scheduler_args`, ADS's
startOptions), where Muster sets the same ones.

Our checks and the other nodes go by what Muster sets: a port that only the program hears of is one
that nobody connects to. Such an option is adopted, so that all go by it, or refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.errors import Problem
from muster.spec.wording import Refused as WrongValue


class Adopted(Struct, frozen=True):
    """An option that stands for one of the framework's own. option: which. parse: from what the
    program takes to what that takes; raises wording.Refused."""

    names: tuple[str, ...]
    option: str
    parse: Callable[[str], str] = str


class Dropped(Struct, frozen=True):
    """A switch that says what is so anyway."""

    names: tuple[str, ...]


class Refused(Struct, frozen=True):
    """why: what Muster does about it. hint: what to write instead. allowed: values that say what is
    so anyway. switch: whether it has no value."""

    names: tuple[str, ...]
    why: str
    hint: str = "leave it out"
    allowed: tuple[str, ...] = ()
    switch: bool = False


Rule = Adopted | Dropped | Refused


class Program(Struct, frozen=True):
    """A program that takes an owner's words. field: the option they stand in; rules: for those that
    Muster sets itself."""

    field: str
    rules: tuple[Rule, ...]


def adopted(
    options: Any,
    programs: Iterable[Program],
    problems: list[Problem],
    fixed: Mapping[str, tuple[str, str]],
) -> Any:
    """The framework's options with those that stand among a program's words, which are taken out
    there. problems: what has to be said about them is added. fixed: options that the owner has set
    elsewhere -> where, and to what. The same value twice is no problem."""
    for program in programs:
        path = f"framework_options.{program.field}"
        given, rest = _parted(path, getattr(options, program.field), program.rules, problems)
        for option, (name, text) in given.items():
            made = _with(options, option, text, path, name, problems)
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
    return Problem(path, text, "leave out one of them, or say the same")


def _parted(
    path: str, words: Sequence[str], rules: Sequence[Rule], problems: list[Problem]
) -> tuple[dict[str, tuple[str, str]], tuple[str, ...]]:
    """Option -> (name, value) of those that are adopted, where the last one counts as it does for
    the program; and the words that are left."""
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
    """Each word, with the value it has if it is a known option: `--port 1`, `--port=1`, `-p 1`,
    `-p1`."""
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


def _with(
    options: Any, option: str, text: str, path: str, name: str, problems: list[Problem]
) -> Any:
    """The options with that one read from a text, by the rules of its own field; None, and
    `problems` extended, if it cannot be."""
    from muster.spec.decode import decode

    found: list[Problem] = []
    read = decode(type(options), {option: _plain(text)}, found, path)
    if read is None or found:
        hint = f"give what framework_options.{option} takes"
        problems += [Problem(path, f"{name}: {p.message}", p.hint or hint) for p in found]
        return None
    return replace(options, **{option: getattr(read, option)})


def _plain(text: str) -> Any:
    """A number, a truth or a text, as YAML would have it."""
    if text.lstrip("-").isdigit():
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)
