"""Write the folder that an image is built from: the recipe and the files that it copies."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.images.prepare import BuildContext
from muster.images.recipe import HEAD, RECIPE_FILE, recipe_text

#: Modification time of generated files (1980), so that builders that compare times reuse layers.
_EPOCH = 315532800


def write_context(folder: Path, context: BuildContext) -> Path:
    """Write the context into `folder`, creating it; returns the recipe's path.

    Replaces what an earlier call wrote, and never touches anything else. Raises InvalidInput.
    """
    recipe = folder / RECIPE_FILE
    try:
        _check_place(folder, recipe, context.source)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("code", *{path.partition("/")[0] for path in context.files}):
            _remove(folder / name)
        for path, content in {
            **context.files,
            RECIPE_FILE: recipe_text(context.recipe).encode(),
        }.items():
            _write(folder / path, content)
        if context.source is not None:
            source = context.source
            _copy(source.parent if source.is_file() else source, context.code, folder / "code")
    except OSError as error:
        text = f"cannot write {error.filename or folder}: {error.strerror}"
        hint = "build contexts are written to TMPDIR, or to --output"
        raise InvalidInput(Problem("", text, hint)) from None
    return recipe


def _check_place(folder: Path, recipe: Path, source: Path | None) -> None:
    if folder.exists() and any(folder.iterdir()) and not _is_ours(recipe):
        text = f"{folder} is not empty and was not written by an earlier build"
        raise InvalidInput(Problem("--output", text, "use a new or empty folder"))
    if source is None:
        return
    here, code = folder.resolve(), source.resolve()
    # a single file may share its folder with the context: only that file is code
    if here.is_relative_to(code) or code.is_relative_to(here):
        text = f"{folder} and the code in {source} contain one another"
        raise InvalidInput(Problem("--output", text, "use a folder next to the code"))


def _is_ours(recipe: Path) -> bool:
    try:
        return recipe.read_text(errors="replace").startswith(HEAD)
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)
    os.utime(path, (_EPOCH, _EPOCH))


def _copy(source: Path, files: tuple[str, ...], folder: Path) -> None:
    """Copy the files and make them readable: containers may run as another user."""
    for name in files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target, follow_symlinks=False)
        if not target.is_symlink():
            mode = target.stat().st_mode
            target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
    for inner in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        if not inner.is_symlink():
            inner.chmod(0o755)
