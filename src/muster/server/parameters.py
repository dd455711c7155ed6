"""Read the parameters of an operation from its path, its query and its body."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints
from urllib.parse import unquote_plus

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import fields

from muster.api.operations import Operation
from muster.errors import InvalidInput, Problem
from muster.spec.decode import decode_partial
from muster.spec.models import JobSpec
from muster.spec.override_models import RunOverrides
from muster.spec.overrides import Changes
from muster.spec.reader import ParsedSpec
from muster.spec.wording import suggestion
from muster.store.records import LATEST_TIME
from muster.type_info import decode_json

#: Parameters that a query has at most.
_MOST_PARAMETERS = 10_000
#: What every database stores.
_LARGEST_WHOLE = (1 << 63) - 1


class Field(Struct, frozen=True):
    """A name that a query may have."""

    name: str
    #: The type of its value.
    kind: Any
    #: Whether it may be given several times; each time is an item.
    many: bool
    #: Whether its texts are `KEY=VALUE`.
    mapping: bool
    required: bool
    #: Whether it may be None, which is sent by leaving it out.
    optional: bool
    #: The parameter of the method, if that is a Struct with this field; else "".
    within: str = ""


class Parameters:
    """The parameters of one operation."""

    def __init__(self, operation: Operation, function: Callable[..., Any]) -> None:
        """function: the method of `MusterAPI`."""
        hints = get_type_hints(function)
        given = [*inspect.signature(function).parameters.values()][1:]
        in_path = {word[1:-1] for word in operation.path.split("/") if word.startswith("{")}
        self.answer = hints["return"]
        self.path = {one.name: hints[one.name] for one in given if one.name in in_path}
        self.query: dict[str, Field] = {}
        #: Parameter -> its type, of those that are Structs in the query.
        self._structs: dict[str, Any] = {}
        #: Those of them that a method cannot be called without.
        self._needed: set[str] = set()
        body = []
        for one in given:
            if one.name in in_path:
                continue
            if one.name in operation.body:
                default = () if one.default is inspect.Parameter.empty else (one.default,)
                body.append((one.name, hints[one.name], *default))
            else:
                self._add_to_query(one, hints[one.name])
        #: The type of the JSON body; None if there is none.
        self.body = None
        if body:
            words = (word.capitalize() for word in function.__name__.split("_"))
            name = f"{''.join(words)}Body"
            self.body = msgspec.defstruct(name, body, forbid_unknown_fields=True)

    def _add_to_query(self, parameter: inspect.Parameter, hint: Any) -> None:
        struct = _struct_in(hint)
        if struct is None:
            required = parameter.default is inspect.Parameter.empty
            self.query[parameter.name] = _field(parameter.name, hint, required=required)
            return
        self._structs[parameter.name] = struct
        needed = parameter.default is inspect.Parameter.empty
        if needed:
            self._needed.add(parameter.name)
        for field in fields(struct):
            found = _field(field.name, field.type, required=needed and field.required)
            self.query[field.name] = msgspec.structs.replace(found, within=parameter.name)

    def read(self, path: Mapping[str, str], query: str, body: bytes) -> dict[str, Any]:
        """The arguments of the method. query: as in the URL, still encoded. Raises InvalidInput
        with all problems."""
        problems: list[Problem] = []
        given: dict[str, Any] = {}
        for name, hint in self.path.items():
            given[name] = _converted(path[name], hint, name, problems)
        given |= self._read_query(query, problems)
        if self.body is not None:
            given |= read_body(self.body, body, problems)
        for name, value in given.items():
            _check_numbers(value, name, problems)
            _check_rules(value, problems)
        if problems:
            raise InvalidInput(*problems)
        return given

    def _read_query(self, query: str, problems: list[Problem]) -> dict[str, Any]:
        texts = parse_query(query)
        for name in texts:
            if name not in self.query:
                hint = suggestion(name, self.query)
                problems.append(Problem(name, "unknown parameter", hint))
        given: dict[str, Any] = {}
        within: dict[str, dict[str, Any]] = {name: {} for name in self._structs}
        for name, field in self.query.items():
            found = texts.get(name)
            if found is None:
                if field.required and field.optional:
                    given[name] = None
                elif field.required:
                    problems.append(Problem(name, "is missing"))
                continue
            value = _value(field, found, problems)
            (within[field.within] if field.within else given)[name] = value
        if problems:
            return {}
        for name, values in within.items():
            if values or name in self._needed:
                made = _converted(values, self._structs[name], name, problems)
                given[name] = made
        return given


def parse_query(query: str) -> dict[str, list[str]]:
    """Name -> its texts, in order. Raises InvalidInput if there are too many."""
    found: dict[str, list[str]] = {}
    if not query:
        return found
    pairs = query.split("&")
    if len(pairs) > _MOST_PARAMETERS:
        raise InvalidInput(Problem("", f"the query has more than {_MOST_PARAMETERS:,} parameters"))
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name:
            found.setdefault(unquote_plus(name), []).append(unquote_plus(text))
    return found


def read_number(query: str, name: str, most: int) -> int | None:
    """A parameter that is a number from 0 to `most`; None if it is not given. Raises
    InvalidInput."""
    texts = parse_query(query).get(name, [])
    if not texts:
        return None
    if len(texts) > 1:
        raise InvalidInput(Problem(name, "is given more than once"))
    return number_of(texts[0], name, most)


def number_of(text: str, name: str, most: int) -> int:
    """A text as a number from 0 to `most`. name: of what it is, for the error. Raises
    InvalidInput."""
    # digits of other scripts, and thousands of digits, are none either
    if text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and int(text) <= most:
        return int(text)
    raise InvalidInput(Problem(name, f"{text[:80]!r} is not a number from 0 to {most}"))


def read_body(kind: type[Struct], body: bytes, problems: list[Problem]) -> dict[str, Any]:
    """The fields of a JSON body. problems: extended."""
    value = decode_body(kind, body, problems)
    if value is None:
        return {}
    return {name: getattr(value, name) for name in kind.__struct_fields__}


def decode_body(kind: Any, body: bytes, problems: list[Problem]) -> Any:
    """A JSON body as a value of a type; None if it is not valid. problems: extended."""
    try:
        return decode_json(body or b"{}", kind)
    except msgspec.ValidationError as error:
        problems.append(problem_of(error))
    except msgspec.DecodeError as error:
        problems.append(Problem("", f"the body is not JSON: {error}"))
    except UnicodeDecodeError:
        problems.append(Problem("", "the body is not UTF-8"))
    return None


def problem_of(error: msgspec.ValidationError) -> Problem:
    """msgspec's text ends with a path, such as `$.run.source`."""
    text, _, path = str(error).partition(" - at `")
    return Problem(path.rstrip("`").removeprefix("$").removeprefix("."), text.lower())


def _value(field: Field, texts: Sequence[str], problems: list[Problem]) -> Any:
    if field.mapping:
        pairs = (text.partition("=") for text in texts if text)
        return {key: value if equals else None for key, equals, value in pairs}
    if field.many:
        return _converted([text for text in texts if text], field.kind, field.name, problems)
    if len(texts) > 1:
        problems.append(Problem(field.name, "is given more than once"))
        return None
    return _converted(texts[0], field.kind, field.name, problems)


def _converted(value: Any, kind: Any, name: str, problems: list[Problem]) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        found = problem_of(error)
        problems.append(found._replace(path=f"{name}{found.path}"))
        return None


def _check_numbers(value: Any, name: str, problems: list[Problem]) -> None:
    """Refuse numbers that no time, duration or count is: the store cannot compare them."""
    if isinstance(value, float) and not -LATEST_TIME <= value <= LATEST_TIME:  # or not a number
        text = f"{value} is not between {-LATEST_TIME:.0f} and {LATEST_TIME:.0f}"
        problems.append(Problem(name, text))
    elif name == "limit" and isinstance(value, int) and value < 0:
        problems.append(Problem(name, f"must be at least 0, not {value}"))
    elif isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
        problems.append(Problem(name, f"{str(value)[:30]} is too large"))
    elif isinstance(value, Struct):
        for field in value.__struct_fields__:
            _check_numbers(getattr(value, field), field, problems)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            if isinstance(item, (int, float)):
                _check_numbers(item, name, problems)


def _check_rules(value: Any, problems: list[Problem]) -> None:
    """Check the rules of the values in a spec and in overrides: they were decoded by their types
    alone."""
    if isinstance(value, ParsedSpec):
        decode_partial(JobSpec, to_builtins(value.spec), problems)
    elif isinstance(value, Changes):
        _check_rules(value.overrides, problems)
    elif isinstance(value, RunOverrides):
        set_ones = {name: one for name, one in to_builtins(value).items() if one is not None}
        decode_partial(RunOverrides, set_ones, problems)


def _field(name: str, hint: Any, *, required: bool) -> Field:
    kinds = [get_origin(kind) or kind for kind in _alternatives(hint)]
    classes = [kind for kind in kinds if isinstance(kind, type)]
    mapping = any(issubclass(kind, Mapping) for kind in classes)
    many = any(_is_collection(kind) for kind in classes)
    return Field(name, hint, many, mapping, required, NoneType in get_args(hint))


def _is_collection(kind: type) -> bool:
    texts = (str, bytes, Mapping)
    return hasattr(kind, "__iter__") and hasattr(kind, "__len__") and not issubclass(kind, texts)


def _struct_in(hint: Any) -> type[Struct] | None:
    structs = (k for k in _alternatives(hint) if isinstance(k, type) and issubclass(k, Struct))
    return next(structs, None)


def _alternatives(hint: Any) -> list[Any]:
    """The types of a union, without None."""
    if get_origin(hint) is None or not get_args(hint):
        return [hint]
    is_union = str(get_origin(hint)) in ("typing.Union", "<class 'types.UnionType'>")
    return [kind for kind in get_args(hint) if kind is not NoneType] if is_union else [hint]
