"""The folder of one run that nodes share: what its node servers are started with, and their logs.

Slurm keeps the script and the environment of `sbatch` where administrators read them, so variables
and tokens are here, in files that only their owner reads.
"""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

from muster.engines.base import RunContext
from muster.engines.remote.dialing import Dialing
from muster.engines.slurm import script
from muster.engines.slurm.profile import SlurmProfile
from muster.engines.slurm.shared_folder import remove_files
from muster.node.files import replace_file
from muster.node.host_programs import inherited

#: srun says so on clusters that bind nothing.
_NOISE = "lacks support for cpu binding"


class RunFolder:
    """A run's folder. Methods that write raise OSError. Any thread may call those about servers."""

    def __init__(self, path: Path, context: RunContext, profile: SlurmProfile) -> None:
        self.path = path
        self._context, self._profile = context, profile
        #: Where the folders of node servers are.
        self._nodes = str(profile.scratch or path.parent)
        #: A folder from which another thread removes files may be listed without some that it still
        #: has, and cannot be removed then.
        self._changing = threading.Lock()

    @property
    def address_file(self) -> Path:
        """Where nodes read whom to dial."""
        return self.path / "address"

    @property
    def node_script(self) -> Path:
        """What each task of a step runs, with the slots of all tasks as its arguments."""
        return self.path / "node.sh"

    @property
    def python(self) -> str:
        """The Python of nodes."""
        return self._profile.python or self._context.python

    def create(self) -> None:
        """Create the folder."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_scripts(self, program: Path) -> None:
        """Write what is the same for all nodes. program: the node program, for nodes."""
        nodes = f"{self._nodes}/{self._context.plan.run_id}"
        text = script.node_script(str(self.path), self.python, str(program), nodes)
        replace_file(self.node_script, text.encode(), 0o600)
        environ = {} if self._context.plan.clean_env else inherited(self._context.environ)
        text = script.environment_script(environ)
        replace_file(self.path / "environment", text.encode(), 0o600)

    def write_settings(self, slot: int, server: int, dialing: Dialing) -> None:
        """Write what a server of a slot is started with. server: see `Allocation.server`."""
        token = self.path / f"{server}-{slot}.token"
        settings = dialing.settings(slot, self._nodes, str(token))
        settings["amounts"] |= {"required": []}  # Slurm limits what its nodes have
        text = json.dumps(settings).encode() + b"\n"
        with self._changing:
            replace_file(token, dialing.token(slot, server).encode(), 0o600)
            replace_file(self.path / f"{server}-{slot}.settings", text, 0o600)

    def remove_settings(self, slot: int, server: int) -> None:
        """Remove them: a server that starts later ends at once."""
        with self._changing:
            for name in ("settings", "token"):
                (self.path / f"{server}-{slot}.{name}").unlink(missing_ok=True)

    def remove_node(self, slot: int, server: int) -> None:
        """Remove what a server has left that has ended, as far as that is on this machine, or on a
        file system that it shares."""
        run_id = self._context.plan.run_id
        with self._changing:
            shutil.rmtree(f"{self._nodes}/{run_id}-{server}-{slot}", ignore_errors=True)

    def last_words(self, slot: int, server: int, job: str = "") -> str:
        """What a server of a slot has written last or, if it has written nothing, its job; "" if
        nothing. job: see `Allocation.file`."""
        found = last_line(self.path / f"{server}-{slot}.log")
        return last_line(self.path / f"{job}.log") if job and not found else found

    def remove(self) -> None:
        """Remove it, with what servers have left that were killed."""
        with self._changing:
            remove_files(self.path)


def last_line(path: Path) -> str:
    """The last line of a log, for people; "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    shown = [line.strip() for line in lines if line.strip() and _NOISE not in line]
    return shown[-1].removeprefix("muster-node: ")[:300] if shown else ""
