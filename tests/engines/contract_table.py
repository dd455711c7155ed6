"""The table of docs/internals/contract.md: what each engine was shown to do by the contract tests.

`make contract` runs these tests for all engines and writes the page from their results. A test is
a row if it runs for each kind of engine; cases of one test have one row.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from muster.engines.base import Capabilities

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "contract.md"
MODULES = {
    "test_events.py": "Calls and events",
    "test_contract.py": "One start of a node",
    "test_restarts.py": "Restarts",
    "test_commands.py": "Commands in nodes",
    "test_forwards.py": "Ports of nodes",
    "test_arrays.py": "Arrays",
}
#: The kinds of engines, and their columns.
KINDS = {
    "local-namespaces": "local",
    "local-plain": "local, no namespaces",
    "local-shared": "local, shared supervisor",
    "processes": "processes",
    "servers": "servers",
    "dialed": "dialed",
    "hosts": "hosts",
    "container": "container",
    "slurm": "slurm",
    "oci": "oci",
    "kubernetes": "kubernetes",
    "simulated": "simulated",
    "simulated-agents": "simulated, detached",
}
#: What the engine contract is about, for `pytest.mark.subject`.
SUBJECTS = (
    "start order",
    "addresses and roster",
    "environment",
    "exit codes",
    "signals",
    "outputs",
    "logs complete and in order",
    "a cancel ends everything",
    "node loss",
    "restart strategies",
    "attach after a kill",
    "two runs side by side",
    "partition",
    "slow node",
    "full disk",
)
_HEAD = """\
# What engines were shown to do

The contract tests (`tests/engines`) run for each engine; this page has their results:
`make contract` writes it. `processes` is a plug-in with few capabilities, as another package could
have it. `servers` is what engines share whose nodes are elsewhere, without an infrastructure.
`dialed` is the same with servers that dial the supervisor, over TCP with TLS. `hosts` reaches its
machines with a real sshd, `container` its containers with a real Podman, `slurm` a real Slurm
cluster of virtual nodes, `oci` a stand-in for the service of OCI, and `kubernetes` a double of a
cluster, whose pods are processes. CONTRACT_OCI=server has Muster's own server in place of that
stand-in, CONTRACT_OCI=bucket messages go through a bucket, and `single` each node have a job run;
they go together, as in CONTRACT_OCI=server,bucket. `simulated` has nodes of the
[simulation](simulation.md), which are about events only: no files, processes or networks.

"""
_NODE = re.compile(r"tests/(?:engines/)?(?P<module>\S+\.py)::(?P<test>\w+)(?:\[(?P<case>.*)\])?")
_CAPABILITY = re.compile(r"((?: +#: .*\n)+) +(\w+): bool")

#: (module or section, row) -> kind -> what happened: "yes", "no", or why it was skipped.
Results = Mapping[tuple[str, str], Mapping[str, str]]


class Recorder:
    """A plug-in of pytest that writes the page."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record what has happened."""
        found = _NODE.match(report.nodeid)
        if found is None or (report.when != "call" and report.passed):
            return
        case = kind_of(found["case"] or "")
        if case is not None and found["module"] in MODULES:
            self._note(found["module"], found["test"], case, report)
        for section, (name, of) in report.user_properties:
            kind = of or case
            if kind is not None:
                self._note(section, name, kind, report)

    def _note(self, section: str, name: str, kind: str, report: pytest.TestReport) -> None:
        row = self._results.setdefault((section, name), {})
        row[kind] = merged(row.get(kind, ""), outcome(report))

    def pytest_sessionfinish(self) -> None:
        """Write the page, unless a worker does that."""
        if self._results:
            PAGE.write_text(page(self._results))


def kind_of(case: str) -> str | None:
    """The kind of engine that a case is about."""
    found = [kind for kind in KINDS if f"-{kind}-" in f"-{case}-"]
    return max(found, key=len, default=None)


def outcome(report: pytest.TestReport) -> str:
    """What has happened in a test, or why it was skipped."""
    if report.skipped:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return text.removeprefix("Skipped: ")
    return "yes" if report.passed else "no"


def merged(before: str, now: str) -> str:
    """The outcome of several cases: a failure counts most, and a success more than a skip."""
    return next((one for one in ("no", "yes") if one in (before, now)), before or now)


def page(results: Results) -> str:
    """The text of the page."""
    notes: list[str] = []
    lines = [_HEAD, "## By subject\n\n", _columns("")]
    lines += [_row(one, results.get(("subject", one), {}), notes) for one in SUBJECTS]
    lines += ["\n## By capability\n\n", _columns("promise | ")]
    tested = [one for one in promises() if ("capability", one) in results]
    for name in tested:
        row = results["capability", name]
        lines.append(_row(f"`{name}` | {promises()[name]}", row, notes))
    others = ", ".join(f"`{name}`" for name in promises() if name not in tested)
    lines.append(f"\nTests of each engine, not of the contract, show the others: {others}.\n\n")
    for module, title in MODULES.items():
        rows = {test: row for (of, test), row in sorted(results.items()) if of == module}
        lines += [f"## {title}\n\n", _columns("")]
        lines += [_row(_sentence(test), row, notes) for test, row in rows.items()]
        lines.append("\n")
    lines += [f"[^{number}]: {note}\n" for number, note in enumerate(notes, 1)]
    return "".join(lines)


def promises() -> dict[str, str]:
    """The capabilities, with what each promises: its comment in `engines.base`."""
    text = inspect.getsource(Capabilities)
    found = {name: about.replace("#:", "").split() for about, name in _CAPABILITY.findall(text)}
    return {name: " ".join(words) for name, words in found.items()}


def _columns(more: str) -> str:
    titles = f"{more}{' | '.join(KINDS.values())}"
    return f"| | {titles} |\n| --- |{' --- |' * (titles.count('|') + 1)}\n"


def _row(title: str, row: Mapping[str, str], notes: list[str]) -> str:
    return f"| {title} | {' | '.join(_cell(row.get(kind, ''), notes) for kind in KINDS)} |\n"


def _cell(result: str, notes: list[str]) -> str:
    if result in ("yes", "no", ""):
        return result or "-"
    if result not in notes:
        notes.append(result)
    return f"-[^{notes.index(result) + 1}]"


def _sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def rows_of(text: str) -> set[str]:
    """The tests that a page has rows for."""
    places = [text.find(f"## {title}\n") for title in MODULES.values()]
    tests = text[min(place for place in places if place >= 0) :]
    first = (line.split("|")[1].strip() for line in tests.splitlines() if line.startswith("| "))
    return {*first} - {"", "---"}


def names_in(folder: Path) -> Iterable[str]:
    """The rows that the page should have at most: the tests of the modules."""
    for module in MODULES:
        for test in re.findall(r"^def (test_\w+)\(", (folder / module).read_text(), re.MULTILINE):
            yield _sentence(test)
