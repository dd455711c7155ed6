"""`muster top`."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from muster.cli.arguments import json_option, optional_run_argument
from muster.cli.output import print_json, print_table
from muster.cli.terminal import echo

if TYPE_CHECKING:
    from muster.api.usage import Counters
    from muster.client.client import Client
    from muster.errors import EngineError, InvalidInput

N = TypeVar("N", int, float)

#: Column to sort by, the largest first -> the field of `Row`.
_SORTS = {
    "cpu": "cpu",
    "memory": "memory",
    "read": "disk_read",
    "write": "disk_written",
    "in": "received",
    "out": "sent",
    "gpu": "gpus",
}


class Row(NamedTuple):
    """What a node or all nodes of a run use; the rates are per second. None: that is not known, or
    is not measured yet."""

    #: A run's name, or a node's rank.
    name: str
    #: A number of nodes, or a node's group.
    what: str
    processes: int | None
    #: CPUs that are busy.
    cpu: float | None
    #: Bytes.
    memory: int | None
    disk_read: float | None
    disk_written: float | None
    #: None for nodes on the machine's network.
    received: float | None
    sent: float | None
    #: How many GPUs are busy, and bytes of their memory; None without GPUs.
    gpus: float | None = None
    gpu_memory: int | None = None


#: The counters of one moment, by (the run's id, rank).
Sample = Mapping[tuple[str, int], "Counters"]


@click.command()
@optional_run_argument()
@click.option("--interval", "-d", type=click.FloatRange(0.2, 3600), default=2.0, metavar="SECONDS",
              show_default=True, help="Time between two updates.")  # fmt: skip
@click.option("--once", is_flag=True, help="Print one table and exit (default if not a terminal).")
@click.option(
    "--sort",
    type=click.Choice([*_SORTS]),
    help="Sort by this, largest first. Default: by rank; runs: newest first.",
)
@json_option("Print one sample as JSON: rates per second, sizes in bytes.")
def top(run_name: str | None, interval: float, once: bool, sort: str | None, as_json: bool) -> None:
    """Show what nodes use: CPU, memory, disk, network and GPUs.

    Without RUN, shows all runs in progress. CPUS and GPUS count busy CPUs and GPUs (the latter as
    nvidia-smi reports them); 1.00 is one that is fully busy. Memory shared between processes is
    counted once (PSS). Disk and network are rates per second; nodes that use the machine's own
    network have no network rates. For JobSets that run unchanged or were adopted, only CPU and
    memory are shown, from the cluster's metrics API. Press q or Ctrl-C to quit.

    \b
    muster top
    muster top train-3 --sort memory
    muster top train-3 --once --json
    """
    from muster.client.client import Client

    client = Client()
    view = _View(client, run_name, sort)
    live = (
        not (once or as_json) and os.isatty(0) and os.isatty(1) and os.environ.get("TERM") != "dumb"
    )
    before, at = view.sample(), time.monotonic()
    if not before:
        if not view.unread:
            echo("no nodes run" if run_name else "no runs are in progress", err=True)
        view.print_unread()
        if as_json:
            print_json([])
        return
    if not live:
        time.sleep(min(interval, 1.0))
        rows = view.rows(before, view.sample(), time.monotonic() - at)
        if as_json:
            print_json([view.data(row) for row in rows])
        else:
            view.print(rows)
        view.print_unread()
        return
    end = None
    with _screen(), contextlib.suppress(KeyboardInterrupt):
        wait = min(interval, 0.5)
        while not _quit_pressed(wait):
            now, now_at = view.sample(ended_is_empty=True), time.monotonic()
            if not now and (end := view.end()):
                break
            sys.stdout.write("\x1b[H\x1b[J")
            lines = shutil.get_terminal_size().lines - 2 - len(view.unread)
            view.print(view.rows(before, now, now_at - at), lines)
            view.print_unread(err=False)
            before, at, wait = now, now_at, interval
    if end:
        echo(end)


class _View:
    """What is shown: the nodes of one run, or all running runs."""

    def __init__(self, client: Client, run_name: str | None, sort: str | None) -> None:
        self._client = client
        self._sort = sort
        self._run = None if run_name is None else client.api.find_run(run_name)
        self._names: dict[str, str] = {}
        self._groups: dict[int, str] = {}  # by rank, of the nodes that were shown
        #: Sentences about the runs in progress, or the nodes, that the newest sample lacks.
        self.unread: list[str] = []

    def sample(self, *, ended_is_empty: bool = False) -> Sample:
        """The counters now. Raises InvalidInput if the run is not in progress."""
        from muster.errors import EngineError, InvalidInput

        self.unread.clear()
        client = self._client
        runs = [self._run] if self._run is not None else client.summaries(states=_IN_PROGRESS)
        found: dict[tuple[str, int], Counters] = {}
        for run in runs:
            self._names[run.id] = run.name
            try:
                for rank, counters in client.api.counters(run.id).items():
                    found[run.id, rank] = counters
            except (InvalidInput, EngineError) as error:
                if self._run is not None and not ended_is_empty:
                    raise
                self._note_unread(run.id, error)
        if self._run is not None:
            self._note_unreachable(self._run.id, {rank for _, rank in found})
        return found

    def _note_unreachable(self, run_id: str, shown: set[int]) -> None:
        """Note which nodes are not shown because they cannot be reached."""
        from muster.client.following import unreachable_nodes
        from muster.lifecycle.ranks import format_ranks

        lost = {node.rank for node in unreachable_nodes(self._client.api, run_id)} - shown
        if lost:
            several = len(lost) > 1
            text = "nodes {} are not shown: they" if several else "node {} is not shown: it"
            self.unread.append(f"{text.format(format_ranks(lost))} cannot be reached")

    def _note_unread(self, run_id: str, error: InvalidInput | EngineError) -> None:
        """Note why a run is not shown, unless it has ended meanwhile."""
        from muster.errors import InvalidInput, NotFound

        why = error.problems[0].message if isinstance(error, InvalidInput) else str(error)
        with contextlib.suppress(NotFound):  # it was deleted
            run = self._client.api.find_run(run_id)
            if run.state in _IN_PROGRESS:
                self.unread.append(f"{run.name} is not shown: {why}")

    def print_unread(self, *, err: bool = True) -> None:
        """Name the runs in progress, or the nodes, that are not shown."""
        for text in self.unread:
            echo(text, err=err)

    def end(self) -> str | None:
        """How the run ended; None while it is in progress, or if all runs are shown."""
        from muster.lifecycle.states import AT_REST

        if self._run is None:
            return None
        run = self._client.api.find_run(self._run.id)
        if run.state not in AT_REST:
            return None
        verb = "is" if run.state == "SUSPENDED" else "has ended:"
        return f"{run.name} {verb} {run.state}; `muster status {run.name}` shows what it used"

    def rows(self, before: Sample, now: Sample, seconds: float) -> list[Row]:
        """The rows of the table."""
        rows = []
        if self._run is not None:
            self._find_groups(self._run.id, {rank for _, rank in now})
            for key, counters in sorted(now.items()):
                group = self._groups.get(key[1], "-")
                rows.append(_row(str(key[1]), group, [(key, counters)], before, seconds))
        else:
            for run_id in dict.fromkeys(run_id for run_id, _ in now):
                own = [(key, counters) for key, counters in now.items() if key[0] == run_id]
                rows.append(_row(self._names[run_id], str(len(own)), own, before, seconds))
        if self._sort is not None:
            rows.sort(key=lambda row: _sort_key(row, str(self._sort)), reverse=True)
        return rows

    def _find_groups(self, run_id: str, ranks: set[int]) -> None:
        """Learn the groups of nodes; those of an array start one after another."""
        if new := ranks - self._groups.keys():
            from muster.store.records import NodeFilter

            nodes = self._client.api.nodes(run_id, NodeFilter(ranks=[*new]))
            self._groups |= {node.rank: node.group for node in nodes}

    def data(self, row: Row) -> dict[str, Any]:
        """A row as JSON-ready data."""
        names = ("run", "nodes") if self._run is None else ("rank", "group")
        first = (row.name, int(row.what)) if self._run is None else (int(row.name), row.what)
        return dict(zip(names, first, strict=True)) | {
            "processes": row.processes,
            "cpus": None if row.cpu is None else round(row.cpu, 3),
            "memory": row.memory,
            "disk_read": _rounded(row.disk_read),
            "disk_written": _rounded(row.disk_written),
            "received": _rounded(row.received),
            "sent": _rounded(row.sent),
            "gpus": row.gpus,
            "gpu_memory": row.gpu_memory,
        }

    def print(self, rows: list[Row], lines: int | None = None) -> None:
        """Print the table, with at most this many rows."""
        shown = rows if lines is None else rows[: max(lines - 1, 1)]
        gpus = ("GPUS", "GPU MEM") if any(row.gpus is not None for row in rows) else ()
        title = ("RUN", "NODES") if self._run is None else ("RANK", "GROUP")
        print_table(
            (*title, "PROCS", "CPUS", "MEMORY", *gpus, "READ/s", "WRITE/s", "IN/s", "OUT/s"),
            [_cells(row, gpus=bool(gpus)) for row in shown],
            drop=("PROCS", "OUT/s", "IN/s"),
            shorten={title[0]: 12, title[1]: 8},
        )
        if len(shown) < len(rows):
            echo(f"and {len(rows) - len(shown)} more; --sort shows the largest first")
        if not rows:
            echo("no nodes run")


_IN_PROGRESS = ("IN_PROGRESS", "CANCELING")


def _row(
    name: str,
    what: str,
    nodes: list[tuple[tuple[str, int], Counters]],
    before: Sample,
    seconds: float,
) -> Row:
    """The row of one or more nodes. What the sample before lacks has no rate: the counter may have
    grown for long."""
    from muster.api.usage import grown

    def rate(counter: Callable[[Counters], float | None]) -> float | None:
        more = _sum(
            grown(last, counter(now))
            for key, now in nodes
            if key in before and (last := counter(before[key])) is not None
        )
        return None if more is None else more / seconds

    return Row(
        name,
        what,
        _sum(counters.processes for _, counters in nodes),
        _sum((_sum(counters.cpus for _, counters in nodes), rate(lambda one: one.cpu))),
        _sum(counters.memory for _, counters in nodes),
        rate(lambda one: one.disk_read),
        rate(lambda one: one.disk_written),
        rate(lambda one: one.received),
        rate(lambda one: one.sent),
        _sum(counters.gpus for _, counters in nodes),
        _sum(counters.gpu_memory for _, counters in nodes),
    )


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def _sum(values: Iterable[N | None]) -> N | None:
    """The sum of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known[1:], start=known[0]) if known else None


def _sort_key(row: Row, name: str) -> float:
    found: float | None = getattr(row, _SORTS[name])
    return -1.0 if found is None else found


def _cells(row: Row, *, gpus: bool) -> tuple[str, ...]:
    from muster.spec.quantities import format_size

    def size(value: float | None) -> str:
        return "-" if value is None else format_size(round(value))

    def count(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    processes = "-" if row.processes is None else str(row.processes)
    shown = (count(row.gpus), size(row.gpu_memory)) if gpus else ()
    rates = map(size, (row.disk_read, row.disk_written, row.received, row.sent))
    return (row.name, row.what, processes, count(row.cpu), size(row.memory), *shown, *rates)


@contextmanager
def _screen() -> Iterator[None]:
    """The terminal's other screen, without echo and with keys at once."""
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def _quit_pressed(seconds: float) -> bool:
    """Wait; whether q was pressed, or the terminal was closed."""
    sys.stdout.flush()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0]:
            keys = os.read(0, 64)
            if not keys or b"q" in keys.lower() or b"\x04" in keys:
                return True
    return False
