"""The table of a run's replicas in Python: rows for pandas, a table for `print` and notebooks."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.api.replica_table import ReplicaRow, ReplicaTable
from muster.client.table import aligned
from muster.describe.replicas import progress
from muster.describe.times import optional_moment, span, time_text
from muster.escapes import visible_line

#: Columns of every row, before and after the parameters; metrics follow.
FIRST, NEXT = ("replica",), ("state", "exit_code", "seconds")
_TIMES = ("started_at", "finished_at")
_OF_EVERY_ROW = ("run", "group", *FIRST, *NEXT, *_TIMES)
#: Other names of columns, which are titles of the table for people.
_OTHER_NAMES = {"exit": "exit_code", "time": "seconds"}
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
#: Characters; Python refuses to read integers of some thousand digits.
_LONGEST_NUMBER = 300
#: Significant digits of metrics in tables for people.
_DIGITS = 6


class Replicas(Sequence[Mapping[str, Any]]):
    """The replicas of one or several runs, one row each.

    A row is a flat dict: `replica`, the parameters, `state`, `exit_code`, `seconds`, `started_at`,
    `finished_at` (aware, in UTC), then the metrics; with several runs, `run` first. Names of
    parameters and metrics that are used already become `param.NAME` and `metrics.NAME`. Parameters
    that are numbers are numbers.
    """

    def __init__(self, table: ReplicaTable) -> None:
        self._table = table
        self._columns = Columns(table.rows)
        self._now = time.time()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """For `pandas.DataFrame(run.table().rows)`."""
        return [self._columns.facts(row, self._now) for row in self._table.rows]

    @property
    def states(self) -> dict[str, int]:
        """State -> number of replicas that have started, also of those without a row."""
        return dict(self._table.states)

    @property
    def not_started(self) -> int:
        """The number of replicas that have not started."""
        return self._table.not_started

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns; None where a row lacks a value."""
        rows = self.rows
        return {name: [row.get(name) for row in rows] for name in self._columns.names_of_facts}

    def __len__(self) -> int:
        return len(self._table.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._columns.facts(row, self._now) for row in self._table.rows[index]]
        return self._columns.facts(self._table.rows[index], self._now)

    def __str__(self) -> str:
        titles, rows = self._columns.titles(), [*self._cells()]
        columns = [[*map(visible_line, (t, *(row[t] for row in rows)))] for t in titles]
        right = self._columns.numeric
        lines = zip(
            *(
                aligned(column, right=title in right)
                for title, column in zip(titles, columns, strict=True)
            ),
            strict=True,
        )
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def __repr__(self) -> str:
        total = sum(self._table.states.values()) + self._table.not_started
        return f"<Replicas {progress(self._table.states, total)}>"

    def _repr_html_(self) -> str:
        from muster.client.html import table

        return table([*self._cells()])

    def _cells(self) -> Iterator[dict[str, str]]:
        titles = self._columns.titles()
        for row in self._table.rows:
            cells = self._columns.cells(row, self._now)
            yield {title: cells[title] for title in titles}


class Columns:
    """The columns of some rows."""

    def __init__(self, rows: Sequence[ReplicaRow], *, runs: int = 1) -> None:
        """runs: how many the table is of; the rows may be those of one."""
        several = runs > 1
        groups = len({row.group for row in rows}) > 1
        self._before = (*(("run",) * several), *(("group",) * groups), *FIRST)
        parameters = dict.fromkeys(name for row in rows for name in row.parameters)
        self._used = {*_OF_EVERY_ROW, *_OTHER_NAMES}
        self._used |= {name.upper() for name in self._used}  # they are titles
        #: Column -> name of the parameter.
        self.parameters = {self._take(name, "param."): name for name in parameters}
        #: Column -> key of the metric.
        self.metrics: dict[str, str] = {}
        self.add_metrics(rows)
        #: Titles of columns with numbers only, in tables for people.
        self.numeric = {"REPLICA", "EXIT", "TIME", *self._numeric(rows)}

    def add_metrics(self, rows: Sequence[ReplicaRow]) -> None:
        """Add columns for the metrics of further rows of the same array."""
        known = {*self.metrics.values()}
        for row in rows:
            for key in row.metrics:
                if key not in known:
                    known.add(key)
                    self.metrics[self._take(key, "metrics.")] = key

    def _take(self, name: str, prefix: str) -> str:
        """A column for a name: with the prefix if there is a column of that name."""
        while name in self._used:
            name = prefix + name
        self._used.add(name)
        return name

    def named(self, name: str) -> str | None:
        """The column that a user has named; None if there is none. Titles are names, and
        `param.NAME` and `metrics.NAME` are always understood."""
        if name in self.parameters or name in self.metrics:
            return name
        for prefix, columns in (("param.", self.parameters), ("metrics.", self.metrics)):
            for column, short in columns.items():
                if name == prefix + short:
                    return column
        lower = name.lower()
        lower = _OTHER_NAMES.get(lower, lower)
        return lower if lower in _OF_EVERY_ROW else None

    @staticmethod
    def title(column: str) -> str:
        """The title of a column in the table for people."""
        if column not in _OF_EVERY_ROW:
            return column
        return next((o for o, name in _OTHER_NAMES.items() if name == column), column).upper()

    @property
    def names_of_facts(self) -> list[str]:
        """The keys of `facts`, in order."""
        return [*self._before, *self.parameters, *NEXT, *_TIMES, *self.metrics]

    def _numeric(self, rows: Sequence[ReplicaRow]) -> Iterator[str]:
        for column, name in self.parameters.items():
            values = (row.parameters.get(name) for row in rows)
            if all(value is None or _NUMBER.fullmatch(value) for value in values):
                yield column
        for column, key in self.metrics.items():
            numbers = (row.metrics.get(key) for row in rows)
            if all(value is None or is_number(value) for value in numbers):
                yield column

    def facts(self, row: ReplicaRow, now: float) -> dict[str, Any]:
        """Column -> value of a row; without the metrics that the row lacks."""
        head: dict[str, Any] = {"run": row.run, "group": row.group, "replica": row.replica}
        metrics = row.metrics
        return {
            **{name: head[name] for name in self._before},
            **{
                column: typed(row.parameters[name])
                for column, name in self.parameters.items()
                if name in row.parameters
            },
            "state": row.state,
            "exit_code": row.exit_code,
            "seconds": row.seconds(now),
            "started_at": optional_moment(row.started_at),
            "finished_at": optional_moment(row.finished_at),
            **{column: metrics[key] for column, key in self.metrics.items() if key in metrics},
        }

    def titles(self) -> list[str]:
        """Titles of the table for people. Names of parameters and metrics are as they are."""
        shown = (*self._before, *self.parameters, *NEXT, *self.metrics)
        return [self.title(column) for column in shown]

    def cells(self, row: ReplicaRow, now: float) -> dict[str, str]:
        """Title -> text, of all columns."""
        seconds = row.seconds(now)
        return {
            "RUN": row.run,
            "GROUP": row.group,
            "REPLICA": str(row.replica),
            **{column: row.parameters.get(name, "-") for column, name in self.parameters.items()},
            "STATE": row.state,
            "EXIT": "-" if row.exit_code is None else str(row.exit_code),
            "TIME": "-" if seconds is None else span(seconds),
            "STARTED_AT": time_text(row.started_at) or "-",
            "FINISHED_AT": time_text(row.finished_at) or "-",
            **{column: text_of(row.metrics.get(key)) for column, key in self.metrics.items()},
        }

    def data(self, row: ReplicaRow, now: float) -> dict[str, Any]:
        """Column -> value, as in the row's JSON."""
        whole = row_dict(row, now)
        parameters, metrics = whole.pop("parameters"), whole.pop("metrics")
        return {
            **whole,
            **{column: parameters.get(name) for column, name in self.parameters.items()},
            **{column: metrics.get(key) for column, key in self.metrics.items()},
        }


def row_dict(row: ReplicaRow, now: float) -> dict[str, Any]:
    """A row as JSON-ready data; numbers that JSON has not are null."""
    return {
        "run": row.run,
        "group": row.group,
        "replica": row.replica,
        "state": row.state,
        "parameters": {name: typed(value) for name, value in row.parameters.items()},
        "exit_code": row.exit_code,
        "seconds": row.seconds(now),
        "started_at": time_text(row.started_at),
        "finished_at": time_text(row.finished_at),
        "metrics": {key: _finite(value) for key, value in row.metrics.items()},
    }


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def typed(text: str) -> str | int | float:
    """A parameter as a number, if it is written as one: 0.1, 17, 1e-3; not 007."""
    if len(text) > _LONGEST_NUMBER:
        return text
    if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0"):
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    number = float(text)
    if match[2] or match[3]:
        return number if math.isfinite(number) else text
    return int(text)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """A metric in a table for people."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return value if isinstance(value, str) else json.dumps(value)
