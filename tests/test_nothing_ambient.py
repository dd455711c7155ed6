"""Below the entry points, nothing is read from the process that a request happens to be served by.

What a run starts from comes with its submission (`muster.submission`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "muster"
PACKAGES = ("service", "control", "spec", "plan", "storage")
#: Attributes of modules and classes that depend on the process, as they are written.
AMBIENT = ("os.environ", "os.environb", "os.getenv", "os.getcwd", "Path.cwd", "Path.home")

#: Module: function -> why it may.
ALLOWED = {
    "control/launcher.py": {"spawn": "starts a process of Muster, not of a run"},
    "service/software.py": {"programs": "`muster doctor` reports on the process that it runs in"},
    "storage/home.py": {"default_home": "finds MUSTER_HOME for an entry point that names none"},
    "storage/sync.py": {"main": "is an entry point: the engine runs it as a process"},
    "spec/reader.py": {"parse_spec": "the default base of paths of who reads a spec of its own"},
    "spec/overrides.py": {
        "with_absolute_paths": "as parse_spec: overrides are read by clients",
        "decode_overrides": "likewise, for files of parameter sets",
    },
    "spec/formats/ads/read.py": {
        "_fill_variables": "clients read files, in the submitter's process"
    },
}


def reads(path: Path) -> Iterator[tuple[str, str, int]]:
    """(function, what it reads, line) of a module; imports of the names count too."""
    tree = ast.parse(path.read_text())
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    for node in ast.walk(tree):
        found = ""
        if isinstance(node, ast.Attribute):
            found = ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            found = next((n for a in node.names if (n := f"os.{a.name}") in AMBIENT), "")
        if found in AMBIENT:
            inside = [f for f in functions if f.lineno <= node.lineno <= (f.end_lineno or 0)]
            yield (inside[-1].name if inside else ""), found, node.lineno


def found_in(*packages: str) -> dict[tuple[str, str], str]:
    """(module, function) -> what it reads."""
    paths = [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]
    assert len(paths) > 20
    return {
        (path.relative_to(ROOT).as_posix(), function): f"{path}:{line}: {what}"
        for path in paths
        for function, what, line in reads(path)
    }


def test_only_entry_points_read_the_environment_and_the_working_directory() -> None:
    allowed = {(module, name) for module, names in ALLOWED.items() for name in names}
    found = found_in(*PACKAGES)
    assert [text for place, text in found.items() if place not in allowed] == []
    assert sorted(allowed - set(found)) == [], "exceptions that are not needed any more"


def test_reading_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import os\nfrom os import getcwd\nfrom pathlib import Path\n"
        "def one():\n    return os.environ['A']\ndef two(p=Path.cwd()):\n    return p\n"
    )
    assert sorted(reads(path)) == [
        ("", "os.getcwd", 2),
        ("one", "os.environ", 5),
        ("two", "Path.cwd", 6),
    ]
