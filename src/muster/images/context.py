"""The folder an image is built from: the recipe, and all it copies."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from muster.errors import InvalidInput, Problem
from muster.images.draft import Draft
from muster.images.recipe import HEAD, RECIPE_FILE, recipe_text

#: Of files that are written here: builders that look at times find their layers again.
_THEN = 315532800


def write_context(folder: Path, draft: Draft) -> Path:
    """Write all of it into `folder`, which is made; returns the recipe's path.

    What an earlier call wrote there goes; anything else is never touched. Raises InvalidInput.
    """
    recipe = folder / RECIPE_FILE
    try:
        _check_place(folder, recipe, draft.source)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("code", *{path.partition("/")[0] for path in draft.files}):
            _remove(folder / name)
        for path, content in {
            **draft.files,
            RECIPE_FILE: recipe_text(draft.recipe).encode(),
        }.items():
            _write(folder / path, content)
        if draft.source is not None:
            source = draft.source
            _copy(source.parent if source.is_file() else source, draft.code, folder / "code")
    except OSError as error:
        text = f"cannot write {error.filename or folder}: {error.strerror}"
        hint = "what images are built from is put into TMPDIR, or where --output says"
        raise InvalidInput(Problem("", text, hint)) from None
    return recipe


def _check_place(folder: Path, recipe: Path, source: Path | None) -> None:
    if folder.exists() and any(folder.iterdir()) and not _is_ours(recipe):
        text = f"{folder} holds something else"
        raise InvalidInput(Problem("--output", text, "name a new folder, or an empty one"))
    if source is None:
        return
    here, code = folder.resolve(), source.resolve()
    # of one file, what else is in its folder is not code: it may well be there
    if here.is_relative_to(code) or code.is_relative_to(here):
        text = f"{folder} and the code in {source} lie in one another"
        raise InvalidInput(Problem("--output", text, "name a folder beside it"))


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
    os.utime(path, (_THEN, _THEN))


def _copy(source: Path, files: tuple[str, ...], folder: Path) -> None:
    """As they are, but readable: who runs the image need not be who built it."""
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
