"""Values of parameters as text, and the number of parameter sets of an array. Pure.

    0.1,0.01         values
    0..99            whole numbers from 0 to 99; 000..099 keeps the zeros
    0..1..0.25       with a step: 0, 0.25, 0.5, 0.75, 1
    "a,b",c          quotes keep commas and spaces; a quote in quotes is written twice
    uniform(0,1)     a distribution: uniform, loguniform, int or choice

Ranges are never expanded: an array of a million sets takes as little memory as its text.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from msgspec import Struct

from muster.secrets import hide, names_secret
from muster.spec.wording import Refused, say, short, suggestion

if TYPE_CHECKING:
    from muster.spec.models import Array

#: Maximum parameter sets of an array.
MAX_SETS = 1_000_000
#: Arrays with more sets are probably a mistake, and need a confirmation.
MANY_SETS = 100_000
#: Maximum combinations of which a sample is drawn.
MAX_COMBINATIONS = 2**62
MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?:\.\.({_NUMBER}))?", re.ASCII)
#: Text that is meant as a range, but is none.
_LIKE_RANGE = re.compile(rf"{_NUMBER}\.\.", re.ASCII)
_CALL = re.compile(r"([A-Za-z]+)\(([^()]*)\)", re.ASCII)
_ZERO_PADDED = re.compile(r"[+-]?0\d+", re.ASCII)
_DISTRIBUTIONS = ("uniform", "loguniform", "int", "choice")
#: Text that starts like a distribution.
_LIKE_CALL = re.compile(rf"(?:{'|'.join(_DISTRIBUTIONS)})\(", re.ASCII)
#: Values that need no quotes, unless they look like one of the forms above or below.
_PLAIN = re.compile(r"[\w.+/:@%=~$^!?'&|\\-]+")
#: Mistakes that would be one value: numbers or letters of a range, numbers without commas, and a
#: second parameter.
_DASHED = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)
_LETTERS = re.compile(r"[A-Za-z]\.\.[A-Za-z]", re.ASCII)
_NUMBERS = re.compile(rf"{_NUMBER}(?:[;\s]+{_NUMBER})+", re.ASCII)
_SECOND = re.compile(r"\s([A-Za-z][\w.-]*=)", re.ASCII)
#: Bounds or choices of distributions, for hints.
_EXAMPLES = {"uniform": "0.001,0.1", "loguniform": "1e-5,1e-1", "int": "1,10", "choice": "a,b"}
_OPENING = {")": "(", "]": "[", "}": "{"}
#: Powers of ten beyond which a range's numbers would be very long, and maximum characters of one.
_MAX_EXPONENT = 100
_MAX_NUMBER = 200
_TOO_LARGE = 10**_MAX_NUMBER
#: Fields of `Array`.
_FIELDS = ("parameters", "file", "rows", "sample", "sample_seed")


class Range(Struct, frozen=True):
    """Numbers at equal distances, as text."""

    first: int
    """In units of 10 ** -decimals, as `step`."""
    step: int
    count: int
    decimals: int
    width: int
    """Characters that whole numbers have at least, with zeros in front."""

    def at(self, index: int) -> str:
        """The number at this index."""
        number = self.first + index * self.step
        if not self.decimals:
            return str(number).zfill(self.width)
        digits = str(abs(number)).zfill(self.decimals + 1)
        text = f"{digits[: -self.decimals]}.{digits[-self.decimals :]}".rstrip("0").rstrip(".")
        return f"-{text}" if number < 0 and text != "0" else text


class Values(Sequence[str]):
    """The values of one parameter, in order: at most MAX_COMBINATIONS."""

    def __init__(self, parts: Sequence[tuple[str, ...] | Range]) -> None:
        self._parts = parts
        sizes = (part.count if isinstance(part, Range) else len(part) for part in parts)
        self._ends = list(accumulate(sizes))
        self._count = self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        number = bisect_right(self._ends, index)
        part = self._parts[number]
        inside = index - (self._ends[number - 1] if number else 0)
        return part.at(inside) if isinstance(part, Range) else part[inside]


class Distribution(Struct, frozen=True):
    """Values drawn at random."""

    kind: str
    """`uniform`, `loguniform`, `int` or `choice`."""
    bounds: tuple[float, float] = (0.0, 0.0)
    """The least and the greatest value."""
    choices: Sequence[str] = ()


@lru_cache(maxsize=64)
def parse_values(text: str) -> Values | Distribution:
    """The values that a text stands for. Raises Refused."""
    if (call := _CALL.fullmatch(text.strip())) is not None:
        return _distribution(call[1], call[2])
    if _LIKE_CALL.match(text.strip()) and ")" not in text:
        raise Refused(f"{short(text)} has a ( that is not closed", _example(text))
    parts = list(_parts(text))
    count = sum(part.count if isinstance(part, Range) else len(part) for part in parts)
    if count > MAX_COMBINATIONS:
        raise Refused(f"{short(text)} has too many values", "use a larger step, or uniform(0,1)")
    return Values(parts)


def format_values(values: Sequence[str]) -> str:
    """The text from which `parse_values` makes exactly these values. Raises Refused if there are
    none."""
    if not values:
        raise Refused("has no values", "give at least one")
    return ",".join(_quoted(value) for value in values)


def values_text(value: Any) -> Any:
    """The values of a parameter as text, from text, one value, a list or a `range`. Values of other
    types are returned as they are. Raises Refused."""
    if isinstance(value, range):
        if not value:
            raise Refused(f"{value} is empty", "give at least one value")
        first, last = scalar_text(value[0]), scalar_text(value[-1])
        step = f"..{scalar_text(value.step)}" if value.step != 1 else ""
        return first if first == last else f"{first}..{last}{step}"
    if not isinstance(value, (str, Mapping)) and hasattr(value, "tolist"):
        value = value.tolist()  # of NumPy or pandas
    if isinstance(value, (list, tuple)):
        return format_values([scalar_text(item) for item in value])
    if isinstance(value, (bool, int, float)):
        return scalar_text(value)
    if isinstance(value, Mapping) or value is None:
        raise Refused(f"must be a list or text, not {say(value)}", "write [0.1, 0.01] or 0..99")
    if isinstance(value, str):
        parse_values(value)
    return value


def scalar_text(value: Any, name: str = "a value") -> str:
    """A value of a parameter as its program gets it. name: for messages. Raises Refused."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) and abs(value) >= _TOO_LARGE:  # Python limits `str`, too
        raise Refused(f"{name} has too many digits", "write it as text")
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if not isinstance(value, (Mapping, list, tuple)) and hasattr(value, "tolist"):
        return scalar_text(value.tolist(), name)  # a number of NumPy
    hint = 'write "" for an empty text' if value is None else ""
    if isinstance(value, Mapping):
        key = "KEY" if names_secret(name) else next(iter(value), "KEY")
        hint = f"flatten it: {name}_{key}"
    elif isinstance(value, (list, tuple)):
        hint = "write it as one text"
    raise Refused(f"{name} must be text, a number, true or false, not {say(value)}", hint)


def check_name(name: str) -> str:
    """The name of a parameter. Raises Refused if it cannot be that of an option."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        hint = f"use up to {MAX_NAME} letters, digits, _ . and -, starting with a letter"
        raise Refused(f"{short(name)} is not a valid name of a parameter", hint)
    return name


def variable_of(name: str) -> str:
    """The environment variable with the value of a parameter: lr -> MUSTER_PARAM_LR."""
    return "MUSTER_PARAM_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def fields_of_array(value: Any) -> Any:
    """The fields of an array from its short forms: the name of a file, a list of sets, or a mapping
    of parameters. Values of other types are returned as they are. Raises Refused."""
    if isinstance(value, str) and is_parameter(value):
        name, _, values = value.partition("=")
        values = hide(name, values)
        raise Refused(f"{short(f'{name}={values}')} is not a file", f"write {{{name}: [{values}]}}")
    if isinstance(value, (str, os.PathLike)):
        return {"file": os.fspath(value)}
    if isinstance(value, (list, tuple)):
        return {"rows": value}
    if not isinstance(value, Mapping):
        raise Refused(f"must be a mapping, a list or a file, not {say(value)}", _converted(value))
    given = [name for name in value if name in _FIELDS]
    others = [str(name) for name in value if name not in _FIELDS]
    if given and others:
        text = f"has the parameter {others[0]} beside {given[0]}"
        raise Refused(text, f"write parameters: {{{others[0]}: ...}}")
    return value if given else {"parameters": value}


def is_parameter(text: str) -> bool:
    """Whether a text is NAME=VALUES, as on the command line, rather than the name of a file."""
    name, equals, _ = text.partition("=")
    return bool(equals) and _NAME.fullmatch(name) is not None


def _converted(value: Any) -> str:
    """A hint how to make a list of sets."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return 'write array=DATAFRAME.to_dict("records")'
    return "write list(...)" if isinstance(value, Iterable) else "write {lr: [0.1, 0.01]}"


def names_of(array: Array) -> tuple[str, ...]:
    """The names of the parameters, those of `rows` first."""
    return (*row_names(array), *array.parameters)


def row_names(array: Array) -> tuple[str, ...]:
    """The names of the parameters of `rows`."""
    if array.rows is None:
        return ()
    from muster.spec.parameter_rows import names_in

    return names_in(array.rows)


def distributions(array: Array) -> list[str]:
    """The names of the parameters that have a distribution."""
    found = {name: parse_values(text) for name, text in array.parameters.items()}
    return [name for name, values in found.items() if isinstance(values, Distribution)]


def combinations(array: Array) -> int:
    """The number of sets without a sample; parameters with a distribution count once."""
    sizes = [_row_count(array)]
    for text in array.parameters.values():
        values = parse_values(text)
        sizes.append(1 if isinstance(values, Distribution) else len(values))
    return math.prod(sizes)


def _row_count(array: Array) -> int:
    """The number of sets of `rows`; 1 if there are none, as for combinations."""
    if array.rows is None:
        return 1
    from muster.spec.parameter_rows import count_rows

    return count_rows(array.rows)


def set_count(array: Array) -> int:
    """The number of parameter sets."""
    return combinations(array) if array.sample is None else array.sample


def notes_on(array: Array) -> Iterator[str]:
    """Sentences on parameters with one value that looks like several, or with empty ones."""
    if array.rows is not None and '""' in array.rows:
        from muster.spec.parameter_rows import lines_of, row_at

        lines = lines_of(array.rows)
        empty = [row for line in lines if '""' in line for row in [row_at(line)] if "" in row]
        for index, name in enumerate(row_names(array)):
            if count := sum(not row[index] for row in empty):
                yield f"{name} is empty in {count:,} of {len(lines):,} parameter sets"
    for name, text in array.parameters.items():
        values = parse_values(text)
        if '"' in text or isinstance(values, Distribution) or len(values) > 1 or names_secret(name):
            continue
        if "*" in text:
            way = "patterns are not expanded: list the files"
            yield f"{name} has one value, {short(text)}; {way}, or write their names to a file"
        elif re.search(r"[\s;]", text.strip()):
            yield f"{name} has one value, {short(text)}; commas separate values"


def array_text(array: Array) -> str:
    """An array in one line, as options of `muster run` would give it."""
    parts = [f"{name}={text}" for name, text in array.parameters.items()]
    if array.rows is not None:
        count = _row_count(array)
        sets = f"{count:,} set{'s' if count != 1 else ''} of {', '.join(row_names(array))}"
        parts.insert(0, sets if array.file is None else f"{array.file} ({sets})")
    if array.sample is not None:
        parts.append(f"sample {array.sample} (seed {array.sample_seed})")
    return " ".join(parts)


def _parts(text: str) -> Iterator[tuple[str, ...] | Range]:
    """Runs of single values, and ranges."""
    listed: list[str] = []
    for value, is_quoted in _items(text):
        found = None if is_quoted else _range(value)
        if found is None:
            if not is_quoted:
                _check_item(text, value)
            listed.append(value)
            continue
        if listed:
            yield tuple(listed)
            listed = []
        yield found
    if listed:
        yield tuple(listed)


def _items(text: str) -> Iterator[tuple[str, bool]]:
    """The items between commas, and whether each was in quotes. Raises Refused."""
    at, column = 0, 1
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        column = at + 1
        if at < len(text) and text[at] == '"':
            value, at = _quoted_item(text, at)
            yield value, True
        else:
            end = text.find(",", at)
            end = len(text) if end < 0 else end
            value, at = text[at:end].rstrip(), end
            if not value:
                at_column = f"{short(text)} has an empty value at column {column}"
                what = at_column if text.strip() else "has no values"
                raise Refused(what, 'write "" for an empty text')
            yield value, False
        if at == len(text):
            return
        at += 1  # the comma


def _quoted_item(text: str, start: int) -> tuple[str, int]:
    """The value in quotes that starts here, and where the comma or the end after it is."""
    match = re.compile(r'"((?:[^"]|"")*)"\s*(?=,|\Z)').match(text, start)
    if match is None:
        hint = 'write a quote in quotes twice: ""'
        raise Refused(f"{short(text)} has a quote at column {start + 1} that is not closed", hint)
    return match[1].replace('""', '"'), match.end()


def _quoted(value: str) -> str:
    """A value in quotes if it would be read as something else without, or might be."""
    return value if _is_plain(value) else '"' + value.replace('"', '""') + '"'


def _is_plain(value: str) -> bool:
    """Whether a value means the same with and without quotes."""
    if _PLAIN.fullmatch(value) is None or ("-" in value and _DASHED.fullmatch(value)):
        return False
    return ".." not in value or not (_LIKE_RANGE.match(value) or _LETTERS.fullmatch(value))


def _check_item(text: str, value: str) -> None:
    """Refuse a value without quotes that is probably meant as something else. text: all values.
    Raises Refused."""
    if _is_plain(value):
        return
    as_text = f'"{value}" in quotes is text'
    if "\n" in value:
        hint = "write lines to a file: (echo NAME; ls inputs) | muster run --array - ..."
        raise Refused(f"{short(value)} has several lines", hint)
    if (dashed := _DASHED.fullmatch(value)) and int(dashed[1]) < int(dashed[2]):
        hint = f"for a range write {dashed[1]}..{dashed[2]}; {as_text}"
        raise Refused(f"{value} is one value", hint)
    if _LETTERS.fullmatch(value):
        raise Refused(f"{value} is not a range of numbers", f"list the values; {as_text}")
    if _NUMBERS.fullmatch(value):
        commas = ",".join(re.split(r"[;\s]+", value))
        raise Refused(f"{short(value)} is one value", f"write {commas}; {as_text}")
    if second := _SECOND.search(value):
        hint = f"give --array once for each; {as_text}"
        raise Refused(f"{short(value)} has a second parameter, {second[1]}", hint)
    if _LIKE_CALL.match(value):
        hint = "leave out the other values; in quotes it is text"
        raise Refused(f"{short(text)}: a distribution stands alone", hint)
    bracket = _unbalanced(value)
    if not bracket and value[0] not in "[(":
        return
    whole = text.strip()
    is_list = whole[0] + whole[-1] in ("[]", "()")
    if is_list and (bracket or value == whole):
        raise Refused(f"{short(whole)} is in brackets", f"write {whole[1:-1] or '1,2'}")
    if bracket:
        meant = value if _unbalanced(whole) else whole
        hint = f"quotes keep brackets and commas: {_quoted(meant)}"
        raise Refused(f"{short(value)} has {bracket} without its pair", hint)


def _unbalanced(value: str) -> str:
    """A bracket that has no pair; "" if all have one."""
    opened: list[str] = []
    for character in value:
        if character in "([{":
            opened.append(character)
        elif character in _OPENING and (not opened or opened.pop() != _OPENING[character]):
            return character
    return opened[0] if opened else ""


def _example(text: str) -> str:
    """A hint for a text that starts like a distribution."""
    kind = text.strip().partition("(")[0]
    return f"write {kind}({_EXAMPLES[kind]})"


def _range(text: str) -> Range | None:
    """The range that a text stands for; None for a single value. Raises Refused."""
    match = _RANGE.fullmatch(text)
    if match is None:
        if _LIKE_RANGE.match(text):
            hint = f'write 0..99 or 0..1..0.25; "{text}" in quotes is text'
            raise Refused(f"{short(text)} is not a range", hint)
        return None
    if max(len(number or "") for number in match.groups()) > _MAX_NUMBER:
        raise Refused(f"{short(text)} has numbers that are too long", "list the values")
    if match[3] is None:
        _check_step(match)
    first, last = Decimal(match[1]), Decimal(match[2])
    step = Decimal(match[3] or 1)
    exponents = [int(number.as_tuple().exponent) for number in (first, last, step)]
    if min(exponents) < -_MAX_EXPONENT or max(exponents) > _MAX_EXPONENT:
        raise Refused(f"{text} has numbers that are too long", "list the values")
    decimals = max(0, *(-exponent for exponent in exponents))
    start, end, distance = (_scaled(number, decimals) for number in (first, last, step))
    if not distance or (end - start) * distance < 0:
        back = f"{match[1]}..{match[2]}..-{(match[3] or '1').lstrip('+-')}"
        hint = f"write {back}" if start > end else "use a step above 0"
        raise Refused(f"{text} is an empty range", hint)
    padded = [part for part in (match[1], match[2]) if _ZERO_PADDED.fullmatch(part)]
    width = max((len(part) for part in padded), default=0) if not decimals else 0
    return Range(start, distance, (end - start) // distance + 1, decimals, width)


def _check_step(match: re.Match[str]) -> None:
    """Refuse a range without a step whose ends are not both whole numbers. Raises Refused."""
    ends = Decimal(match[1]), Decimal(match[2])
    if all(re.fullmatch(r"[+-]?\d+", end) for end in (match[1], match[2])):
        return
    hint = "as in 0..1..0.25"
    if "e" in match[0].lower() and min(ends) > 0 and ends[0] < ends[1]:
        hint = f"write a step, or loguniform({match[1]},{match[2]})"
    elif "e" not in match[0].lower():
        smallest = Decimal(1).scaleb(min(int(end.as_tuple().exponent) for end in ends))
        sign = "-" if ends[0] > ends[1] else ""
        hint = f"write {match[0]}..{sign}{smallest:f}"
    raise Refused(f"{match[0]} needs a step", hint)


def _scaled(number: Decimal, decimals: int) -> int:
    """The number in units of 10 ** -decimals, exactly."""
    sign, digits, exponent = number.as_tuple()
    whole = int("".join(map(str, digits))) * int(10 ** (int(exponent) + decimals))
    return -whole if sign else whole


def _distribution(kind: str, inside: str) -> Distribution:
    if kind not in _DISTRIBUTIONS:
        hint = f"{suggestion(kind, _DISTRIBUTIONS)}; in quotes it is text"
        raise Refused(f"no distribution named {kind}", hint)
    if kind == "choice":
        choices = parse_values(inside)
        assert isinstance(choices, Values)  # there are no brackets in it
        return Distribution(kind, choices=choices)
    texts = [text.strip() for text in inside.split(",")]
    whole = kind == "int"
    number = r"[+-]?\d{1,15}" if whole else _NUMBER
    if len(texts) != 2 or not all(re.fullmatch(number, text, re.ASCII) for text in texts):
        what = "two whole numbers" if whole else "two numbers"
        raise Refused(f"{kind}({inside}) needs {what}", f"write {kind}({_EXAMPLES[kind]})")
    least, greatest = map(float, texts)
    if not math.isfinite(greatest - least):
        raise Refused(
            f"{short(f'{kind}({inside})')} has numbers that are too large", _example(kind)
        )
    if least >= greatest:
        raise Refused(f"{kind}({inside}) is empty", "write the smaller number first")
    if kind == "loguniform" and least <= 0:
        raise Refused(f"{kind}({inside}) needs numbers above 0", "or use uniform")
    return Distribution(kind, (least, greatest))
