"""Read the parameter sets of arrays from files or standard input: CSV with a header, or JSON lines.

Values are used as written: `010` stays `010`, and `1.10` stays `1.10`.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from muster.errors import InvalidInput, Problem
from muster.secrets import names_secret
from muster.spec.arrays import check_name, is_parameter
from muster.spec.files import STDIN, read_text, shown_name
from muster.spec.parameter_rows import check_row, pack_rows, text_of_records
from muster.spec.wording import Refused, SeveralRefused, say, short

#: Maximum size of a file in bytes, enough for a million sets of some parameters.
MAX_FILE = 64 * 2**20
_JSON_LINES = (".jsonl", ".ndjson")
#: Suffixes of files that are neither CSV nor JSON lines.
_OTHER = (".yaml", ".yml", ".json", ".toml", ".xlsx", ".parquet")
_FORMATS = "write CSV with names in the first line, or a JSON object in each line (.jsonl)"


def with_rows(data: Any, folder: Path, problems: list[Problem]) -> Any:
    """A spec or overrides, as plain data, with the sets of the files that arrays name.

    folder: base of relative paths. problems: extended; an array whose file has problems is left
    out.
    """
    if not isinstance(data, Mapping):
        return data
    made = dict(_level(data, "", folder, problems))
    groups = made.get("node_groups")
    if isinstance(groups, (list, tuple)):
        made["node_groups"] = [
            _level(group, f"node_groups[{number}].", folder, problems)
            for number, group in enumerate(groups)
        ]
    elif isinstance(groups, Mapping):
        made["node_groups"] = {
            name: _level(group, f"node_groups[{name}].", folder, problems)
            for name, group in groups.items()
        }
    return made


def read_sets(path: Path, shown: str) -> str:
    """The sets in a file, in the form of `parameter_rows`. shown: the file's name in messages.
    Raises InvalidInput, with the line."""
    text = read_text(path, MAX_FILE)
    suffix = path.suffix.lower()
    try:
        if suffix in _JSON_LINES or text.lstrip().startswith("{"):
            return _json_lines(text)
        _refuse_other(suffix)
        return _csv(text, "\t" if suffix == ".tsv" else ",")
    except SeveralRefused as several:
        listed, more = several.listed()
        problems = [Problem("", e.message, e.hint, f"{shown}:{line}") for line, e in listed]
        if more:
            problems.append(Problem("", f"{more} in the file", "", shown))
        raise InvalidInput(*problems) from None
    except Refused as error:
        raise InvalidInput(Problem("", error.message, error.hint, shown)) from None


def _refuse_other(suffix: str) -> None:
    if suffix in _OTHER:
        raise Refused(f"parameter sets are not read from {suffix} files", _FORMATS)


def _level(data: Any, prefix: str, folder: Path, problems: list[Problem]) -> Any:
    """A job, a group or overrides of either, with the sets of its array's file."""
    array = data.get("array") if isinstance(data, Mapping) else None
    if isinstance(array, (str, os.PathLike)):
        file = os.fspath(array)
        fields: Any = None if is_parameter(file) else {"file": file}
    else:
        fields = array
    if not isinstance(fields, Mapping) or not isinstance(fields.get("file"), str):
        return data
    if not fields["file"] or fields.get("rows") is not None:
        return data
    path = Path(os.path.normpath(folder / os.path.expanduser(fields["file"])))
    if fields["file"] == str(STDIN):
        path = STDIN
    try:
        rows = read_sets(path, shown_name(path) if path == STDIN else fields["file"])
    except InvalidInput as error:
        problems += (problem._replace(path=f"{prefix}array.file") for problem in error.problems)
        return {name: value for name, value in data.items() if name != "array"}
    return {**data, "array": {**fields, "file": str(path), "rows": rows}}


def _csv(text: str, delimiter: str) -> str:
    # `lr, seed` in the header: spaces around values are for people; else they belong to the values
    spaced = f"{delimiter} " in text.lstrip().partition("\n")[0]
    reader = csv.reader(
        io.StringIO(text), delimiter=delimiter, skipinitialspace=spaced, strict=True
    )
    lines = _lines(reader, spaced=spaced)
    try:
        number, head = next(lines)
    except StopIteration:
        raise Refused("the file is empty", "write the names of the parameters first") from None
    names = _header(number, head)
    rows: list[Sequence[str]] = []
    refused: list[tuple[int, Refused]] = []
    has_nul = "\0" in text  # else there is nothing to check: it is UTF-8
    try:
        for number, row in lines:
            try:
                if len(row) != len(names):
                    raise _wrong_length(row, names)
                rows.append(check_row(names, row) if has_nul else row)
            except Refused as error:
                refused.append((number, error))
    except SeveralRefused as error:
        refused += error.parts
    if refused:
        raise SeveralRefused(refused)
    if not rows:
        raise Refused("the file has names, but no parameter sets", "write one in each line")
    return pack_rows(names, rows)


def _wrong_length(row: Sequence[str], names: Sequence[str]) -> Refused:
    values = f"{len(row)} value{'s' if len(row) != 1 else ''}"
    count = f"{len(names)} name{'s' if len(names) != 1 else ''}"
    text = f"{values}, but the header has {count}: {', '.join(names)}"
    if len(row) < len(names):
        return Refused(text, f"there is none for {names[len(row)]}")
    if any(map(names_secret, names)):  # it may be the rest of a secret
        return Refused(text, "put values that have commas in quotes")
    return Refused(text, f"{short(row[len(names)])} has no column")


def _lines(reader: Any, *, spaced: bool) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV file that are not empty, each with its number. spaced: without spaces at
    the end of values."""
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            refused = Refused(f"cannot be read: {error}", "is a quote closed?")
            raise SeveralRefused([(number, refused)]) from None
        if row:
            yield number, [value.rstrip() for value in row] if spaced else row


def _header(line: int, head: Sequence[str]) -> list[str]:
    names: dict[str, int] = {}  # name -> its column
    refused: list[tuple[int, Refused]] = []
    for column, name in enumerate(head, 1):
        try:
            check_name(name)
        except Refused as error:
            text = f"column {column}: {error.message}"
            refused.append((line, Refused(text, _meant(name) or error.hint)))
        if name in names:
            text = f"column {column}: {name} is also column {names[name]}"
            refused.append((line, Refused(text, "names are unique")))
        names.setdefault(name, column)
    if refused:
        raise SeveralRefused(refused)
    return list(names)


def _meant(name: str) -> str:
    """A hint for what is not a name; "" if there is none."""
    if "\t" in name:
        return "separated by tabs? name the file .tsv"
    if ";" in name:
        return "separate the columns by commas"
    if name[:1] in ("[", "]"):
        return "a JSON list? write one object in each line"
    if re.fullmatch(r"[+-]?\.?\d.*", name):
        return "is the header missing? write the names first"
    return ""


def _json_lines(text: str) -> str:
    numbers: list[int] = []
    records: list[Any] = []
    refused: list[tuple[int, Refused]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            records.append(_object(line))
            numbers.append(number)
        except Refused as error:
            refused.append((number, error))
    if not records and not refused:
        raise Refused("the file is empty", 'write {"lr": 0.1} in each line')
    packed = ""
    if records:
        try:
            packed = text_of_records(records, f"line {numbers[0]}")
        except SeveralRefused as several:
            refused += ((numbers[index], error) for index, error in several.parts)
    if refused:
        raise SeveralRefused(sorted(refused, key=lambda each: each[0]))
    return packed


def _object(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line, parse_float=str, parse_int=str, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        hint = "write one JSON object in each line"
        raise Refused(f"column {error.colno}: {error.msg}", hint) from None
    except RecursionError:
        raise Refused("is nested too deeply", "a value is text, a number or true") from None
    if not isinstance(record, dict):
        raise Refused(f"must be an object, not {say(record)}", 'write {"lr": 0.1}')
    return record


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for name, value in pairs:
        if name in record:
            raise Refused(f"{short(name)} is given twice", "names are unique")
        record[name] = value
    return record
