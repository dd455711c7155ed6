"""Parameter sets that are listed one by one, as text. Pure.

The first line has the names, each further line the values of one set, both as a JSON array of
texts. The text is as small as a CSV file, and a line can be decoded without the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from muster.spec.arrays import check_name, scalar_text
from muster.spec.decode import check_storable
from muster.spec.wording import Refused, SeveralRefused, say, short

_DECODER = msgspec.json.Decoder(list[str])


def pack_rows(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The text of these sets, of as many values as there are names."""
    return b"\n".join(map(msgspec.json.encode, (names, *rows))).decode()


def names_in(text: str) -> tuple[str, ...]:
    """The names of the parameters."""
    return tuple(_DECODER.decode(text.partition("\n")[0]))


def count_rows(text: str) -> int:
    """The number of sets."""
    return text.count("\n")


def lines_of(text: str) -> list[str]:
    """The line of each set, for `row_at`."""
    return text.split("\n")[1:]


def row_at(line: str) -> list[str]:
    """The values in one line."""
    return _DECODER.decode(line)


def rows_text(value: Any) -> Any:
    """Sets as text, from text in this form, also with other white space, or a list of mappings.
    Values of other types are returned as they are. Raises Refused."""
    if isinstance(value, str):
        return _packed_again(value)
    if not isinstance(value, (list, tuple)):
        return value
    return text_of_records(value, "the first set")


def text_of_records(records: Sequence[Any], first: str) -> str:
    """The text of sets that all have the same names. first: the first one in messages. Raises
    Refused, for several as SeveralRefused."""
    if not records:
        raise Refused("has no parameter sets", "give at least one")
    names: list[str] = []
    rows: list[Sequence[str]] = []
    refused: list[tuple[int, Refused]] = []
    for index, record in enumerate(records):
        try:
            given = _mapping(record)
            if index and names:
                _check_names(given, names, first)
            elif not index:
                names = _names(given)
            rows.append(check_row(names, [scalar_text(given[name], name) for name in names]))
        except SeveralRefused as several:
            refused += ((index, each) for _, each in several.parts)
        except Refused as error:
            refused.append((index, error))
    if refused:
        raise SeveralRefused(refused)
    return pack_rows(names, rows)


def check_row(names: Sequence[str], row: Sequence[str]) -> Sequence[str]:
    """The values of one set. Raises Refused for one that no program can get."""
    for name, value in zip(names, row, strict=True):
        try:
            check_storable(value)
        except Refused as error:
            raise Refused(f"{name} {error.message}", error.hint) from None
    return row


def _mapping(record: Any) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise Refused(f"must be a mapping, not {say(record)}", "write NAME: VALUE")
    return {str(name): value for name, value in record.items()}


def _names(given: Mapping[str, Any]) -> list[str]:
    if not given:
        raise Refused("has no parameters", "write NAME: VALUE")
    return [check_name(name) for name in given]


def _check_names(given: Mapping[str, Any], names: Sequence[str], first: str) -> None:
    """Raises SeveralRefused, with any index."""
    hint = f"{first} has it: give all the same"
    refused = [Refused(f"has no {name}", hint) for name in names if name not in given]
    if not refused:  # else the names differ
        others = (short(name) for name in given if name not in names)
        refused = [
            Refused(f"has {name}, which {first} has not", "give all the same") for name in others
        ]
    if refused:
        raise SeveralRefused([(0, part) for part in refused])


def _packed_again(text: str) -> str:
    """The text as `pack_rows` writes it: its lines are counted, and decoded one by one. Raises
    Refused."""
    try:
        names, *rows = _DECODER.decode_lines(text)
    except (ValueError, msgspec.MsgspecError):
        names, rows = [], []
    if not names or not rows or any(len(row) != len(names) for row in rows):
        raise Refused("must be a list of parameter sets", "write [{lr: 0.1}, {lr: 0.01}], or file")
    if "\\u0000" in text:  # else there is nothing to check but names: it is UTF-8
        sets = [dict(zip(names, row, strict=True)) for row in rows]
        return text_of_records(sets, "the first set")
    return pack_rows([check_name(name) for name in names], rows)
