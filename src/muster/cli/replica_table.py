"""`muster runs table`."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from muster.api.replica_table import ReplicaRow, ReplicaTable, TableQuery
from muster.cli.flags import as_flags
from muster.cli.output import (
    hidden_columns,
    print_json_items,
    print_json_line,
    print_table,
    state,
    table_lines,
)
from muster.cli.terminal import echo
from muster.client.replica_table import Columns, row_dict
from muster.describe.replicas import ENDED, progress, state_problems
from muster.describe.times import time_text
from muster.errors import InvalidInput, Problem
from muster.escapes import visible_line

if TYPE_CHECKING:
    from muster.api.interface import MusterAPI
    from muster.cli.live_area import LiveArea
    from muster.client.run import JobRun

#: Rows of the table by default. Programs get all of them.
_MAX_ROWS = 50
#: The metric that says why a file with metrics was not recorded.
REASON = "metrics.json"
#: Metrics that a narrow table keeps longest.
_KEPT = 3
#: Seconds between two drawings of the live table.
_EVERY = 1.0
#: Rows of JSON and CSV that are read at once.
_PAGE = 5000
#: Bytes of CSV that are kept in memory until the names of all columns are known.
_IN_MEMORY = 2**24
#: Characters of CSV that are printed at once.
_PRINTED = 2**20


def show_table(
    runs: Sequence[JobRun],
    *,
    sort: str | None,
    reverse: bool,
    states: tuple[str, ...],
    replicas: tuple[int, ...],
    limit: int | None,
    include_not_started: bool,
    columns: str | None,
    as_csv: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the replicas of these runs. Raises InvalidInput."""
    if as_csv and as_json:
        raise InvalidInput(Problem("--csv", "choose one of --csv and --json"))
    for_people = not (as_csv or as_json)
    if limit is None:
        limit = _MAX_ROWS if for_people else 0
    name = (sort or "replica").removeprefix("-")
    query = TableQuery(
        sort=name,
        descending=reverse or (sort or "").startswith("-"),
        states=_states(states),
        replicas=replicas or None,
        limit=limit or None,
        include_not_started=include_not_started,
    )
    if follow and as_json and (len(runs) > 1 or sort or limit):
        text = "with --json prints replicas of one run as they end, without --sort and --limit"
        raise InvalidInput(Problem("--follow", text))
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    view = _View(runs, query, chosen)
    with as_flags("state", "replica", "sort"):
        _show(view, for_people=for_people, follow=follow, as_csv=as_csv, as_json=as_json)


def _show(view: _View, *, for_people: bool, follow: bool, as_csv: bool, as_json: bool) -> None:
    from muster.cli.formats import output_format

    if follow:
        if as_json and output_format() == "json":
            view.print_ended()
            return
        view.follow(live=for_people)
    if as_json:
        view.print_json()
    elif as_csv:
        view.print_csv()
    else:
        view.print()


def _states(given: tuple[str, ...]) -> list[str] | None:
    """Raises InvalidInput."""
    names = [*{name.strip().upper(): None for text in given for name in text.split(",")}]
    if problems := state_problems(names):
        with as_flags("state"):
            raise InvalidInput(*problems)
    return names or None


class _View:
    """What is shown of some runs."""

    def __init__(
        self, runs: Sequence[JobRun], query: TableQuery, columns: list[str] | None
    ) -> None:
        self._runs = list({run.id: run for run in runs}.values())
        self._query = query
        self._columns = columns

    @property
    def _api(self) -> MusterAPI:
        return self._runs[0]._api

    def _read(self, query: TableQuery) -> ReplicaTable:
        return self._api.replica_table([run.id for run in self._runs], query)

    def _pages(self) -> Iterator[Sequence[ReplicaRow]]:
        """The rows, a page at a time if they can be read so."""
        query = replace(self._query, page=_PAGE, counts=False)
        while True:
            found = self._read(query)
            yield found.rows
            if found.next is None:
                return
            left = None if query.limit is None else query.limit - len(found.rows)
            query = replace(query, after=found.next, limit=left)

    def _columns_of(self, rows: Sequence[ReplicaRow]) -> Columns:
        return Columns(rows, runs=len(self._runs))

    # --- text

    def print(self) -> None:
        """Print the table, and what it leaves out."""
        found = self._read(self._query)
        name = ", ".join(run.name for run in self._runs)
        if not found.rows:
            echo(f"{name}: {_none(self._query)}", err=True)
        else:
            titles, rows, right = self._cells(found)
            drop = self._dispensable(found)
            print_table(titles, rows, drop=drop, right=right, shorten={})
            if left_out := hidden_columns(titles, rows, drop=drop, shorten={}):
                names = ", ".join(visible_line(t.lower() if t.isupper() else t) for t in left_out)
                echo(f"left out: {names} (-o wide shows all)", err=True)
        if (left := found.matching - len(found.rows)) > 0:
            echo(f"and {left:,} more; all: `--limit 0`", err=True)
        chosen = self._query.states is not None or self._query.replicas is not None
        if found.not_started and not (chosen or self._query.include_not_started):
            verb = "has" if found.not_started == 1 else "have"
            echo(f"{found.not_started:,} {verb} not started; `--all` lists them", err=True)

    def _cells(
        self, found: ReplicaTable, *, styled: bool = True
    ) -> tuple[list[str], list[list[str]], Collection[str]]:
        """Titles, the texts of each row, and the titles of columns with numbers."""
        columns, now = self._columns_of(found.rows), time.time()
        titles = columns.titles()
        if self._columns is not None:
            titles = [columns.title(column) for column in self._chosen(columns).values()]
        rows = []
        for row in found.rows:
            cells = columns.cells(row, now)
            if styled:
                cells["STATE"] = state(cells["STATE"])
            rows.append([cells[title] for title in titles])
        return titles, rows, columns.numeric

    def _chosen(self, columns: Columns) -> dict[str, str]:
        """Chosen name -> column. Raises InvalidInput for names of no column."""
        found = {}
        for name in self._columns or ():
            column = columns.named(name)
            if column is None:
                hint = f"there are {', '.join(columns.names_of_facts)}"
                raise InvalidInput(Problem("--columns", f"there is no column {name!r}", hint))
            found[name] = column
        return found

    def _dispensable(self, found: ReplicaTable) -> list[str]:
        """Columns that a narrow table leaves out, the least important first."""
        columns = self._columns_of(found.rows)
        metrics = [title for title in reversed(columns.metrics) if title != self._query.sort]
        few = max(len(metrics) - _KEPT, 0)
        last = [title for title in metrics if title == REASON]
        order = [*metrics[:few], "TIME", *metrics[few:], "EXIT"]
        return [*(title for title in order if title not in last), *last]

    # --- data

    def print_json(self) -> None:
        """Print all rows as JSON, or as YAML."""
        now = time.time()
        rows = (row for page in self._pages() for row in page)
        if self._columns is None:
            print_json_items(row_dict(row, now) for row in rows)
            return
        columns = self._columns_of(next(pages := self._pages()))
        for page in pages:  # the names of all metrics, of which later rows may have more
            columns.add_metrics(page)
        chosen = self._chosen(columns)
        print_json_items(_chosen_data(columns, row, chosen) for row in rows)

    def print_csv(self) -> None:
        """Print all rows, with times in UTC, and parameters as they were given."""
        from tempfile import SpooledTemporaryFile

        pages = self._pages()
        first = next(pages)
        columns = self._columns_of(first)
        with SpooledTemporaryFile(
            _IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass", newline=""
        ) as body:
            names = self._columns or columns.names_of_facts
            self._write_csv(body, names, columns, first)
            for rows in pages:
                columns.add_metrics(rows)
                self._write_csv(body, names, columns, rows)
            if first:
                self._chosen(columns)
            if self._columns is None and columns.names_of_facts != names:
                # of the further metrics, the first rows lack the cells
                names = columns.names_of_facts
                body.seek(0)
                body.truncate()
                for rows in self._pages():
                    self._write_csv(body, names, columns, rows)
            body.seek(0)
            head = io.StringIO()
            csv.writer(head, lineterminator="\n").writerow(names)
            text = head.getvalue()
            while text:
                echo(text, end="", secrets=True)  # the rows have none
                text = body.read(_PRINTED)

    def _write_csv(
        self, body: Any, names: Sequence[str], columns: Columns, rows: Sequence[ReplicaRow]
    ) -> None:
        now = time.time()
        cells = [_cell_of(columns.named(name), columns, now) for name in names]
        writer = csv.writer(body, lineterminator="\n")
        writer.writerows([cell(row) for cell in cells] for row in rows)

    # --- following

    def follow(self, *, live: bool) -> None:
        """Show the table until all runs are at rest. live: on a terminal."""
        from muster.cli.live_area import LiveArea, can_be_live

        if not (live and can_be_live(1)):
            for run in self._runs:
                run.wait(progress=False)
            return
        try:
            self._follow_live(LiveArea(part=1))
        except KeyboardInterrupt:
            self.print()
            for run in self._runs:
                if not run.refresh().done:
                    echo(f"{run.name} is still {run.state}", err=True)
            raise

    def _follow_live(self, area: LiveArea) -> None:
        from muster.client.following import wait

        with area.open():
            # without another order, the replicas that started last are at the bottom
            newest = self._query.sort == "replica" and not self._query.descending

            def draw() -> None:
                room = max(area.room - 2, 1)  # besides the header and the last line
                limit = min(self._query.limit or room, room)
                query = replace(
                    self._query, limit=limit, descending=newest or self._query.descending
                )
                found = self._api.replica_table([run.id for run in self._runs], query)
                rows = found.rows[::-1] if newest else found.rows
                area.draw([[(line, "")] for line in self._live_lines(replace(found, rows=rows))])

            draw()
            for run in self._runs:
                wait(self._api, run.id, every=_EVERY, show=draw)

    def _live_lines(self, found: ReplicaTable) -> list[str]:
        total = sum(found.states.values()) + found.not_started
        last = progress(found.states, total)
        if not found.rows:
            return [last]
        titles, rows, right = self._cells(found, styled=False)
        drop = self._dispensable(found)
        return [*table_lines(titles, rows, drop=drop, right=right, shorten={}), last]

    def print_ended(self) -> None:
        """Print a line for each replica that has ended, as soon as it has."""
        chosen = self._query.replicas
        states = [state for state in self._query.states or ENDED if state in ENDED]
        seen: set[tuple[str, int, float | None]] = set()  # a replica that is restarted ends again
        for run in self._runs:
            for numbers in self._ended_replicas(run):
                listed = numbers
                if chosen is not None:
                    listed = [n for n in chosen if numbers is None or n in numbers]
                query = TableQuery(states=states, replicas=listed, counts=False)
                for row in self._api.replica_table([run.id], query).rows:
                    key = row.group, row.replica, row.finished_at
                    if key not in seen:
                        seen.add(key)
                        print_json_line(self._data(row))

    def _data(self, row: ReplicaRow) -> dict[str, Any]:
        """A row's JSON, or its chosen columns: null for those that it lacks."""
        if self._columns is None:
            return row_dict(row, time.time())
        columns = self._columns_of([row])
        return _chosen_data(columns, row, {name: columns.named(name) for name in self._columns})

    def _ended_replicas(self, run: JobRun) -> Iterator[Collection[int] | None]:
        """Numbers of replicas that may have ended, as they do; first None, for all."""
        from muster.lifecycle.ranks import parse_ranges

        after = self._api.last_event(run.id)
        yield None
        for event in run.events(after=after, follow=True):
            if event.kind == "nodes" and event.data.get("state") in ENDED:
                yield run.replicas_of(parse_ranges(event.data["ranks"]))


#: State -> what a replica in it does or did.
_VERBS = {
    "PENDING": "is waiting for a restart",
    "QUEUED": "waits in a queue",
    "STARTING": "is starting",
    "RUNNING": "is running",
    "SUCCEEDED": "has succeeded",
    "FAILED": "has failed",
    "STOPPED": "was stopped",
}


def _none(query: TableQuery) -> str:
    """That a table has no rows."""
    of = "" if query.replicas is None else " of these"
    if query.states is None:
        return f"no replica{of} has started"
    return f"no replica{of} {' or '.join(_VERBS[name] for name in query.states)}"


def _chosen_data(
    columns: Columns, row: ReplicaRow, chosen: Mapping[str, str | None]
) -> dict[str, Any]:
    """chosen: name -> column."""
    data = columns.data(row, time.time())
    return {name: data.get(column or "") for name, column in chosen.items()}


def _cell_of(column: str | None, columns: Columns, now: float) -> Callable[[ReplicaRow], Any]:
    """What a column of a CSV file has in a row."""
    if column is None:
        return lambda _: None
    if (parameter := columns.parameters.get(column)) is not None:
        return lambda row: row.parameters.get(parameter)
    if (key := columns.metrics.get(column)) is not None:
        return lambda row: _csv_value(row.metrics.get(key))
    if column == "seconds":
        return lambda row: row.seconds(now)
    if column in ("started_at", "finished_at"):
        return lambda row: time_text(getattr(row, column))
    return attrgetter(column)


def _csv_value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (bool, list, dict)) else value
