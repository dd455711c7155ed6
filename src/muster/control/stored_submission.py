"""What the nodes of a run start from, in a file of its folder: for the process that recovers it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

from muster.node.files import read_regular, replace_file
from muster.secrets import hide
from muster.storage.home import Home, RunDir
from muster.storage.owners import account_of_run
from muster.submission import Submission
from muster.unix_account import as_root

#: The name of the interpreter in the file of the environment, which no variable has.
_PYTHON = ""


@as_root()
def store(home: Home, run_id: str, environ: Mapping[str, str], python: str) -> None:
    """Store the environment and the interpreter that a run's nodes start from, for the process that
    recovers the run. Only its owner can read the file, which is sealed if a variable is a secret;
    it is deleted when the run has ended. Raises InvalidInput as `seal`."""
    given = {**environ, _PYTHON: python}
    pairs = (os.fsencode(f"{name}={value}") + b"\0" for name, value in given.items())
    content = b"".join(pairs)
    if any(hide(name, value) != value for name, value in environ.items()):
        from muster.storage.sealing import seal_file

        content = seal_file(home, content)
    replace_file(home.run_dir(run_id).environ, content, 0o600)


@as_root()
def delete(folder: RunDir) -> None:
    """Delete the file of a run that has ended."""
    with contextlib.suppress(FileNotFoundError):
        folder.environ.unlink()


@as_root()
def read(home: Home, run_id: str) -> Submission | None:
    """What the nodes of a run start from; None if a program of the run has deleted or replaced the
    file. Raises InvalidInput as `unseal`."""
    try:
        content = read_regular(home.run_dir(run_id).environ)
    except OSError:
        return None
    from muster.storage.sealing import unseal_file

    pairs = unseal_file(home, content, f"run {run_id}").split(b"\0")
    texts = (os.fsdecode(pair).partition("=") for pair in pairs if pair)
    environ = {name: value for name, _, value in texts}
    python = environ.pop(_PYTHON, sys.executable)  # missing in files of earlier versions
    return Submission(environ, python, home.root, account=account_of_run(home.run_dir(run_id)))
