"""README.md of this folder: what documents Muster follows, and the tests that show it does.

The rows are in the YAML files next to this module, one per document. A test is tied to a row
with `@pytest.mark.shows("DOCUMENT/ROW")`. Markers are read from the syntax trees of the tests, so
that no test has to be imported. `python tests/documents/table.py` writes the page.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path

import msgspec

ROOT = Path(__file__).parent.parent.parent
PAGE = Path(__file__).parent / "README.md"

#: Documents, in the order of the page: the names of their files, without `.yaml`.
DOCUMENTS = ("distributed-jobs", "jobs", "cluster-design", "ads-configuration", "jobset")


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement of a document.

    row: unique in its document; named by markers
    section: the heading it is below
    says: the sentence, field, parameter or example, in our own words
    does: what Muster does
    later: the planned feature that will bring it; no test shows it yet
    reason: why no test shows it (`not` in the file)
    """

    row: str
    section: str
    says: str
    does: str = ""
    later: str = ""
    reason: str = msgspec.field(default="", name="not")


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document and its rows, in the document's order."""

    title: str
    rows: tuple[Row, ...]


class Marker(msgspec.Struct, frozen=True, order=True):
    """A test and the row that it shows."""

    file: str
    test: str
    row: str


def documents(folder: Path = Path(__file__).parent) -> dict[str, Document]:
    """The documents by their names.

    Raises:
        msgspec.ValidationError: a row has an unknown field, or lacks one
    """
    return {
        name: msgspec.yaml.decode((folder / f"{name}.yaml").read_bytes(), type=Document)
        for name in DOCUMENTS
    }


def markers(root: Path = ROOT) -> list[Marker]:
    """The markers of every test below `root`/tests, by file and test."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "mark.shows" in text:
            found += sorted(set(markers_in(text, path.relative_to(root).as_posix())))
    return found


def markers_in(text: str, file: str) -> Iterator[Marker]:
    """The markers of one file: those of its functions, classes and parameters, and `pytestmark`.

    Parameters may stand in a list of the module that a decorator names.

    Raises:
        ValueError: a marker belongs to no test, or its rows are not plain strings
    """
    module = ast.parse(text)
    seen: set[ast.Call] = set()
    lists = {
        target.id: node.value
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name, trees in _places(module, lists):
        for call in _calls(trees):
            seen.add(call)
            yield from (Marker(file, name, row) for row in _rows(call, file))
    for call in _calls([module]):
        if call not in seen:
            raise ValueError(f"{file}:{call.lineno}: this marker belongs to no test")


def _places(
    module: ast.Module, lists: Mapping[str, ast.expr]
) -> Iterator[tuple[str, list[ast.expr]]]:
    """Tests ("" for all of the file), and the expressions that mark them."""
    if "pytestmark" in lists:
        yield "", [lists["pytestmark"]]
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node.name, list(node.decorator_list)
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name.startswith("test_"):
                    yield f"{node.name}::{inner.name}", _decorators(inner, lists)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, _decorators(node, lists)


def _decorators(function: ast.FunctionDef, lists: Mapping[str, ast.expr]) -> list[ast.expr]:
    named = [
        lists[node.id]
        for decorator in function.decorator_list
        for node in ast.walk(decorator)
        if isinstance(node, ast.Name) and node.id in lists
    ]
    return [*function.decorator_list, *named]


def _calls(trees: Sequence[ast.AST]) -> Iterator[ast.Call]:
    for node in chain.from_iterable(map(ast.walk, trees)):
        match node:
            case ast.Call(func=ast.Attribute(ast.Attribute(ast.Name("pytest"), "mark"), "shows")):
                yield node


def _rows(call: ast.Call, file: str) -> Iterator[str]:
    for argument in call.args:
        match argument:
            case ast.Constant(value=str(row)):
                yield row
            case _:
                where = f"{file}:{argument.lineno}"
                raise ValueError(f"{where}: name rows by plain strings: {ast.unparse(argument)}")


def problems(found: Mapping[str, Document], marked: Iterable[Marker]) -> list[str]:
    """Everything that is wrong with the rows and with the markers that name them."""
    tests: dict[str, list[Marker]] = {}
    for marker in marked:
        tests.setdefault(marker.row, []).append(marker)
    known = {f"{name}/{row.row}" for name, document in found.items() for row in document.rows}
    wrong = [
        f"{marker.file}::{marker.test}: {row} is no row of tests/documents"
        for row, group in tests.items()
        if row not in known
        for marker in group
    ]
    for name, document in found.items():
        counts = Counter(row.row for row in document.rows)
        wrong += [f"{name}/{slug}: {n} rows have this name" for slug, n in counts.items() if n > 1]
        for row in document.rows:
            wrong += _row_problems(f"{name}/{row.row}", row, tests.get(f"{name}/{row.row}", []))
    return wrong


def _row_problems(name: str, row: Row, tests: list[Marker]) -> Iterator[str]:
    if row.later and row.reason:
        yield f"{name}: give either `later` or `not`"
    if not (row.does or row.later or row.reason):
        yield f"{name}: say what Muster does"
    if tests and (row.later or row.reason):
        key = "later" if row.later else "not"
        shown = f"{tests[0].file}::{tests[0].test}"
        yield f"{name}: has `{key}`, but {shown} shows it: remove one of them"
    if not (tests or row.later or row.reason):
        yield f"{name}: no test is marked with it, and it has neither `later` nor `not`"


def page(found: Mapping[str, Document], marked: Iterable[Marker]) -> str:
    """README.md of this folder."""
    tests: dict[str, list[Marker]] = {}
    for marker in marked:
        tests.setdefault(marker.row, []).append(marker)
    lines = [
        "# The documents that Muster follows",
        "",
        "What each sentence, parameter and example of five documents means for Muster, and the",
        "tests that show it. This page is made from `tests/documents/` and from the markers of the",
        "tests by `python tests/documents/table.py`; the tests fail when it is out of date.",
        "",
        "*later* names what will bring a behaviour that is missing, or not there in full; *not*",
        "says why there is nothing to show.",
        "",
        "| document | rows | shown by tests | later | nothing to show |",
        "| --- | --- | --- | --- | --- |",
    ]
    for document in found.values():
        later = sum(bool(row.later) for row in document.rows)
        nothing = sum(bool(row.reason) for row in document.rows)
        shown = len(document.rows) - later - nothing
        link = f"[{document.title}](#{_anchor(document.title)})"
        lines.append(f"| {link} | {len(document.rows)} | {shown} | {later} | {nothing} |")
    for name, document in found.items():
        lines += ["", f"## {document.title}"]
        for section, rows in groupby(document.rows, lambda row: row.section):
            lines += ["", f"### {section}", "", "| the document | Muster | shown by |"]
            lines += ["| --- | --- | --- |"]
            lines += [_line(row, tests.get(f"{name}/{row.row}", [])) for row in rows]
    return "\n".join(lines) + "\n"


def _line(row: Row, tests: list[Marker]) -> str:
    if row.later:
        shown = f"later: {row.later}"
    elif row.reason:
        shown = f"not: {row.reason}"
    else:
        shown = "<br>".join(map(_link, tests))
    return f"| {_cell(row.says)} | {_cell(row.does)} | {_cell(shown)} |"


def _link(marker: Marker) -> str:
    name = marker.file.removeprefix("tests/") + (f"::{marker.test}" if marker.test else "")
    return f"[`{name}`](../{marker.file.removeprefix('tests/')})"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _anchor(title: str) -> str:
    """GitHub's anchor of a heading."""
    kept = (char for char in title.lower() if char.isalnum() or char in " -_")
    return "".join(kept).replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(documents(), markers()))
