"""Ends the nodes of a run that nobody drives any more."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from muster.engines.hosts.profile import Machine
from muster.engines.hosts.program import run_program
from muster.engines.hosts.record import Record
from muster.engines.hosts.ssh import SshSettings
from muster.engines.remote.record import read_record
from muster.errors import EngineError
from muster.storage.home import RunDir

#: Seconds for a machine to end its nodes.
_TIMEOUT = 90.0
_AT_ONCE = 32


def end_nodes(folder: RunDir, run_id: str, ssh: SshSettings) -> None:
    """End the nodes of a run on all machines, and wait until they have ended. Raises EngineError
    if that cannot be confirmed."""
    try:
        record = read_record(folder.hosts, Record)
    except OSError as error:
        raise EngineError(f"the machines of its nodes are not known: {error}") from None
    if record is None or not record.machines:
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(record.machines))) as pool:
        ends = [
            pool.submit(_end, ssh, machine, record.folder_of(run_id, rank))
            for rank, machine in record.machines.items()
        ]
        failures = [text for one in ends if (text := one.result())]
    if failures:
        raise EngineError(_text(failures))
    folder.hosts.unlink(missing_ok=True)


def _end(ssh: SshSettings, machine: Machine, folder: str) -> str:
    """Why a node could not be ended; "" if it has ended."""
    try:
        run_program(ssh, machine, "end", folder, timeout=_TIMEOUT)
    except OSError as error:
        return f"{machine.name}: {error}"
    return ""


def _text(failures: Sequence[str]) -> str:
    what = "; ".join(failures)
    return f"its nodes could not be ended on every machine: {what}"
