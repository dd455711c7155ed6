"""Reads records from JSON, and checks their fields by the annotations of their classes.

A record is a NamedTuple, in a module with `from __future__ import annotations`. The forms of
annotations are `int`, `float`, `str`, `bool`, `Any`, a record, `Sequence[T]`, `Mapping[str, T]`,
`T | None`, and a name in the record's module for one of these. (`typing.get_type_hints` cannot
evaluate `T | None` on Python 3.9, and takes longer.)
"""

from __future__ import annotations

import sys
from reprlib import Repr
from typing import Any, Callable, Collection, Dict, Mapping, Type, TypeVar

R = TypeVar("R")

#: Reads a value of the right type: (value, the class of the record, the field) -> what the record
#: gets. Raises InvalidRecord.
_Read = Callable[[Any, Type[Any], str], Any]

_SHOWN = Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 2, 80, 80


class InvalidRecord(ValueError):  # noqa: N818
    """Data are not those of a record. The text names the record and the field."""


class _Form:
    """What a field may hold.

    types: those that `json.loads` returns for it. expected: for people. read: for a value of these
    types, but for None; if there is no such function, the record gets the value itself.
    """

    __slots__ = ("expected", "read", "types")

    def __init__(self, types: frozenset[type], expected: str, read: _Read | None = None) -> None:
        self.types, self.expected, self.read = types, expected, read

    def apply(self, value: Any, record: Type[Any], place: str) -> Any:
        """What the record gets for a value. place: the field, for people. Raises InvalidRecord."""
        if type(value) not in self.types:
            raise self.refusal(value, record, place)
        if self.read is None or value is None:
            return value
        return self.read(value, record, place)

    def refusal(self, value: Any, record: Type[Any], place: str) -> InvalidRecord:
        """The error for a value that this is not the form of."""
        words = (record.__name__, place, self.expected, shown(value))
        return InvalidRecord("%s: %s must be %s, not %s" % words)


def read(record: Type[R], data: Any) -> R:
    """The record with these fields; those with a default may be missing.

    data: as `json.loads` returns it. Raises InvalidRecord, which names every missing and unknown
    field, or the first one with a wrong type. Raises TypeError if the record has an annotation of
    another form than those above.
    """
    if type(data) is not dict:
        raise InvalidRecord("%s must be an object, not %s" % (record.__name__, shown(data)))
    if record not in _FIELDS:
        prepare(record)
    fields = _FIELDS[record]
    complete = data.keys() == fields.keys()
    if not complete:
        _check_names(record, data)
        fields = {name: form for name, form in fields.items() if name in data}
    values = []
    for name, form in fields.items():
        value = data[name]
        if type(value) not in form.types:
            raise form.refusal(value, record, name)
        if form.read is not None and value is not None:
            value = form.read(value, record, name)
        values.append(value)
    if not complete:
        return record(**dict(zip(fields, values)))  # noqa: B905
    whole: R = record._make(values)  # type: ignore[attr-defined]
    return whole


def prepare(*records: Type[Any]) -> None:
    """Do now what the first `read` of these records would: a process that forks others, which read
    them, does it once for all."""
    for record in records:
        if record not in _FIELDS:
            _FIELDS[record] = _forms(record)


def shown(value: Any) -> str:
    """A value of JSON for people, shortened; it may be nested as deeply as one likes."""
    return _SHOWN.repr(value)


def _check_names(record: Any, data: Mapping[str, Any]) -> None:
    """Check that there are all fields without a default, and no others. Raises InvalidRecord."""
    fields, optional = record._fields, record._field_defaults
    wrong = ["%s is missing" % name for name in fields if name not in data and name not in optional]
    wrong += ["unknown %.80s" % name for name in sorted(data.keys() - set(fields))]
    if wrong:
        raise InvalidRecord("%s: %s" % (record.__name__, ", ".join(wrong)))


# --- forms

_NONE = type(None)
_NUMBER = frozenset((int, float))
_LARGEST = sys.float_info.max


def _finite(value: Any, record: Type[Any], place: str) -> Any:
    """The number, if it is finite. Raises InvalidRecord.

    `json.loads` reads NaN and Infinity, which are no JSON, and 1e999 as infinity. No duration or
    time in Muster is infinite: what has no limit is None. NaN would disable a limit that is
    compared with it, and an integer that no float can hold cannot be added to a time.
    """
    if -_LARGEST <= value <= _LARGEST:
        return value
    raise InvalidRecord("%s: %s must be finite, not %s" % (record.__name__, place, shown(value)))


_PLAIN = {
    "int": _Form(frozenset((int,)), "an integer"),
    "float": _Form(_NUMBER, "a number", _finite),
    "str": _Form(frozenset((str,)), "a string"),
    "bool": _Form(frozenset((bool,)), "true or false"),
    "Any": _Form(_NUMBER | {str, bool, dict, list, _NONE}, "a value of JSON"),
}
#: Record -> field -> its form. Filled when a record is first read: most processes read few.
_FIELDS: Dict[Type[Any], Dict[str, _Form]] = {}


def _forms(record: Any) -> Dict[str, _Form]:
    """The forms of the fields of a record. Raises TypeError if an annotation has another form."""
    names = vars(sys.modules[record.__module__])
    # NamedTuple makes a ForwardRef from a text
    texts = {k: getattr(a, "__forward_arg__", a) for k, a in record.__annotations__.items()}
    return {name: _form(text, names) for name, text in texts.items()}


def _form(text: str, names: Mapping[str, Any]) -> _Form:
    """The form of an annotation. names: those of its module. Raises TypeError."""
    if text in _PLAIN:
        return _PLAIN[text]
    if text.endswith(" | None"):
        form = _form(text[: -len(" | None")], names)
        return _Form(form.types | {_NONE}, "%s or null" % form.expected, form.read)
    if text.startswith("Sequence[") and text.endswith("]"):
        return _sequence(_form(text[len("Sequence[") : -1], names))
    if text.startswith("Mapping[str, ") and text.endswith("]"):
        return _mapping(_form(text[len("Mapping[str, ") : -1], names))
    named: Any = names.get(text)
    if hasattr(named, "_fields"):
        return _Form(frozenset((dict,)), "an object", lambda value, *_: read(named, value))
    if hasattr(named, "__origin__"):  # another name of a form, which shows how it was written
        return _form(repr(named).replace("typing.", "").replace("collections.abc.", ""), names)
    raise TypeError("fields of records cannot be of type %s" % text)


def _are_right(values: Collection[Any], form: _Form) -> bool:
    """Whether all values have the form's types, and are what the record gets."""
    if form is not _PLAIN["str"]:
        return form.read is None and form.types.issuperset(map(type, values))
    try:
        "".join(values)  # checks their types, in a fourth of the time: most values are variables
    except TypeError:
        return False
    return True


def _sequence(form: _Form) -> _Form:
    def read_items(values: Any, record: Type[Any], place: str) -> Any:
        if _are_right(values, form):
            return values
        return [form.apply(v, record, "%s[%d]" % (place, n)) for n, v in enumerate(values)]

    return _Form(frozenset((list,)), "a list", read_items)


def _mapping(form: _Form) -> _Form:
    def read_values(values: Any, record: Type[Any], place: str) -> Any:
        # the keys of a JSON object are strings
        if _are_right(values.values(), form):
            return values
        return {k: form.apply(v, record, "%s[%s]" % (place, shown(k))) for k, v in values.items()}

    return _Form(frozenset((dict,)), "an object", None if form is _PLAIN["Any"] else read_values)
