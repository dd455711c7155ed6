"""The command that runs stored code: the kind of a file, the path of the entry point, and the
program that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from muster.errors import InvalidInput, Problem
from muster.spec.kinds import ARCHIVES

#: Programs that run notebooks and functions, with the node's own Python.
_RUNNERS = {"notebook": "notebook.py", "function": "function.py"}
#: The folder of `muster.node` on this machine.
NODE = str(Path(__file__).parents[1] / "node")


def folder_name(kind: str, name: str) -> str:
    """The archive's name without its suffix, for the folder with the code; "" for a single file."""
    if kind != "archive":
        return ""
    suffix = max((suffix for suffix in ARCHIVES if name.lower().endswith(suffix)), key=len)
    return name[: -len(suffix)].strip(".")


def locate(
    entrypoint: str, archive: str, roots: Iterable[str], has: Callable[[str], bool]
) -> str | None:
    """The path of the entry point in an archive; None if it is missing or ambiguous.

    OCI: the path starts at the archive's root folder, which has the archive's name. ADS packs
    without that folder, or leaves it out of the path. All three are accepted. roots: the top-level
    folders. has: whether a path is a file of the archive.
    """
    path = PurePosixPath(entrypoint)
    if path.is_absolute() or ".." in path.parts:
        return None
    whole = str(path)
    if has(whole):
        return whole
    below = [place for root in roots if has(place := f"{root}/{whole}")]
    if len(below) == 1:
        return below[0]
    first, _, rest = whole.partition("/")
    return rest if rest and first == archive.partition(".")[0] and has(rest) else None


def command(
    kind: str,
    name: str,
    entrypoint: str | None,
    python: str,
    folder: Path,
    *,
    base: str = "",
    node: str = NODE,
) -> list[str]:
    """The command that runs the file `name` of `folder`. It runs in that folder; if `base` is that
    folder with a slash, in any other.

    entrypoint: the main class of a JAR. python, base, node: the interpreter, `base` and the folder
    of `muster.node` where the command runs, which may be on another machine.
    """
    path = base + name
    given = f"./{path}" if path.startswith("-") else path  # not an option of python or bash
    if kind == "python":
        return [python, given]
    if kind in _RUNNERS:
        return [python, f"{node}/{_RUNNERS[kind]}", given]
    if kind == "shell":
        with open(folder / name, "rb") as file:
            return [*_shell(file.readline(256)), given]
    if kind == "jar":
        return ["java", "-cp", given, entrypoint] if entrypoint else ["java", "-jar", given]
    if kind == "class":
        return ["java", "-cp", *_class_path(path, (folder / name).read_bytes())]
    return [path if base or path.startswith("/") else f"./{path}"]


def _shell(line: bytes) -> list[str]:
    """The shell in a script's first line, with its options (`-e` decides about failure)."""
    from muster.spec.shell import SHELLS  # few jobs run a script of a shell

    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and PurePosixPath(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    name = PurePosixPath(words[0]).name if words else ""
    return [name, *words[1:]] if name in SHELLS else ["bash"]


def _class_path(name: str, data: bytes) -> list[str]:
    """Class path and class. The class names its package, which gives the class path."""
    own = class_name(name, data)
    path = str(PurePosixPath(name).with_suffix(""))
    if path != own and not path.endswith(f"/{own}"):
        hint = f"put it at {own}.class below the root of its packages"
        raise InvalidInput(Problem("entrypoint", f"{name} contains the class {own}", hint))
    return [path.removesuffix(own).rstrip("/") or ".", own.replace("/", ".")]


def class_name(name: str, data: bytes) -> str:
    """The name of a Java class with its package: `com/example/Main`. Raises InvalidInput.

    Java Virtual Machine Specification 4.1 and 4.4: the constant pool, then the class itself.
    """
    try:
        own = _class_name(data) if data.startswith(b"\xca\xfe\xba\xbe") else ""
    except (ValueError, IndexError, KeyError):
        own = ""
    if not own:
        text = f"{name} is damaged or not a Java class"
        raise InvalidInput(Problem("artifact", text, "compile it again"))
    return own


def _class_name(data: bytes) -> str:
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    at, index, count = 10, 1, _u2(data, 8)
    while index < count:
        tag = data[at]
        if tag == 1:
            texts[index] = data[at + 3 : at + 3 + _u2(data, at + 1)].decode(errors="replace")
            at += _u2(data, at + 1)
        elif tag == 7:
            classes[index] = _u2(data, at + 1)
        at += _POOL_SIZES[tag]
        index += 2 if tag in (5, 6) else 1  # long and double take two entries
    return texts[classes[_u2(data, at + 2)]]


#: Bytes of a constant with its tag; the length of a text is added.
_POOL_SIZES = {
    **dict.fromkeys((7, 8, 16, 19, 20), 3),
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 5),
    **{5: 9, 6: 9, 15: 4, 1: 3},
}


def _u2(data: bytes, at: int) -> int:
    if len(data) < at + 2:
        raise ValueError("it is truncated")
    return int.from_bytes(data[at : at + 2])
