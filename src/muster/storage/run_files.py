"""Files in a run's folder that the run and the user exchange: endpoints, arguments, results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from muster.node.files import read_regular
from muster.storage.home import RunDir
from muster.unix_account import UnixAccount


def read_endpoints(folder: RunDir) -> dict[str, str]:
    """The addresses of the run's cluster, by name; empty while the file is missing or invalid."""
    try:
        endpoints: dict[str, str] = json.loads(read_regular(folder.endpoints))
    except (OSError, ValueError):
        return {}
    return endpoints


def rank_in(folder: Path) -> int:
    """The rank of the node that runs, or ran last, in a folder of a node."""
    try:
        words = read_regular(folder / "begun", 64).split()
    except OSError:
        words = []
    return int(words[1]) if len(words) > 1 else int(folder.name)


def slot_of(folder: RunDir, rank: int) -> int | None:
    """The slot in which the node with a rank runs, or ran last; None if it has not run yet, or
    another one, of an array, has run there since."""
    usual = folder.node(rank)
    if usual.is_dir() and rank_in(usual) == rank:
        return rank
    return next((int(one.name) for one in folder.nodes() if rank_in(one) == rank), None)


class TlsFiles(NamedTuple):
    """PEM files for a client of the run's cluster."""

    ca: Path
    certificate: Path
    key: Path


def tls_files(folder: Path) -> TlsFiles:
    """The files in a run's TLS folder."""
    return TlsFiles(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")


def create_with_arguments(
    folder: RunDir, arguments: bytes, account: UnixAccount | None = None
) -> None:
    """Create a run's folder with the arguments of a function; only the user, or the account that
    the run has, can read them."""
    folder.path.mkdir(mode=0o700, parents=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(folder.arguments, flags, 0o600), "wb") as file:
        file.write(arguments)
        if account is not None:
            os.fchown(file.fileno(), account.uid, account.gid)


def remove(folder: RunDir) -> None:
    """Delete the folder of a run that was not started."""
    from shutil import rmtree  # most runs start

    rmtree(folder.path, ignore_errors=True)


def read_result(folder: RunDir, rank: int) -> bytes | None:
    """The pickled result of a function on one rank; None if it left none."""
    from muster.node.function import RESULT  # imports much that only functions need

    for results in _result_folders(folder):
        try:
            return read_regular(results / f"rank-{rank}" / RESULT)
        except OSError:
            continue
    return None


def ranks_with_result(folder: RunDir) -> Iterator[int]:
    """The ranks that left a result, the first to do so first."""
    from muster.node.function import RESULT

    found = [
        path for results in _result_folders(folder) for path in results.glob(f"rank-*/{RESULT}")
    ]
    for path in sorted(found, key=lambda path: path.stat().st_mtime_ns):
        rank = path.parent.name.removeprefix("rank-")
        if rank.isdecimal():
            yield int(rank)


def _result_folders(folder: RunDir) -> tuple[Path, Path]:
    """The folder of the results, and that of runs of earlier versions."""
    return folder.results, folder.outputs
