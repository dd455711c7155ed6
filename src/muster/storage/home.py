"""Where everything lives: MUSTER_HOME and what is in it. Deleting it forgets everything."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from muster.errors import InvalidInput, Problem


class RunDir(Struct, frozen=True):
    """The folder of one run."""

    path: Path

    @property
    def lease(self) -> Path:
        """Locked by whoever drives the run."""
        return self.path / "lease"

    @property
    def bell(self) -> Path:
        """A FIFO: written to for the supervisor's attention."""
        return self.path / "bell"

    @property
    def cluster_file(self) -> Path:
        """Who is in the run (OCI: the cluster metadata file)."""
        return self.path / "cluster.json"

    @property
    def hosts(self) -> Path:
        """What the nodes see as /etc/hosts."""
        return self.path / "hosts"

    @property
    def resolver(self) -> Path:
        """What the nodes see as /etc/resolv.conf, on a network of the run's own."""
        return self.path / "resolv.conf"

    @property
    def namespace(self) -> Path:
        """The run's network, while its way out starts."""
        return self.path / "namespace"

    @property
    def life(self) -> Path:
        """A FIFO: held open by the supervisor until the run has ended."""
        return self.path / "life"

    @property
    def pulse(self) -> Path:
        """Grows by a byte with every step of the run that was recorded."""
        return self.path / "pulse"

    @property
    def environ(self) -> Path:
        """What the nodes' environment starts from, for whoever takes the run up."""
        return self.path / "environ"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor itself had to say: nothing, when all is well."""
        return self.path / "supervisor.log"

    @property
    def mounts(self) -> Path:
        """Copies of what mounts by URL show."""
        return self.path / "mounts"

    @property
    def endpoints(self) -> Path:
        """Where the run's cluster is reached, by name."""
        return self.path / "endpoints.json"

    @property
    def token(self) -> Path:
        """The run's secret, for clients of its cluster; for the owner's eyes only."""
        return self.path / "token"

    @property
    def tls(self) -> Path:
        """Certificates of the run's nodes."""
        return self.path / "tls"

    @property
    def arguments(self) -> Path:
        """What a function is called with, beside `outputs`; for the owner's eyes only."""
        return self.path / "arguments.pickle"

    @property
    def outputs(self) -> Path:
        """What programs leave behind for their owner: executed notebooks, results."""
        return self.path / "outputs"

    def output(self, rank: int) -> Path:
        """The same, of the process of that rank."""
        return self.outputs / f"rank-{rank}"

    def scratch(self, name: str) -> Path:
        """A directory all nodes of the run share."""
        return self.path / "scratch" / name

    def node(self, rank: int) -> Path:
        """The folder of one node."""
        return self.path / "nodes" / str(rank)

    def work(self, rank: int) -> Path:
        """The working directory of a node's processes: its own copy of the code."""
        return self.node(rank) / "work"

    @property
    def service_log(self) -> Path:
        """What Muster says of the run, beside the nodes' output."""
        return self.path / "logs" / "service.log"

    def logs(self, attempt: int) -> Path:
        """Plain files with the nodes' output."""
        return self.path / "logs" / str(attempt)


class Home(Struct, frozen=True):
    """MUSTER_HOME."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "muster.db"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def shapes(self) -> Path:
        """The owner's own shapes, beside those that ship."""
        return self.root / "shapes.yaml"

    @property
    def checkouts(self) -> Path:
        """Where git repositories are while their files are stored."""
        return self.root / "checkouts"

    @property
    def environments(self) -> Path:
        """What was installed for runs, each by what is in it."""
        return self.root / "environments"

    def volume(self, name: str) -> Path:
        """A directory that runs share, and that stays when they are gone."""
        return self.root / "volumes" / name

    def run_dir(self, run_id: str) -> RunDir:
        return RunDir(self.runs / run_id)

    def prepare(self) -> None:
        """Make what is missing, for its owner's eyes only. Raises InvalidInput if it cannot."""
        try:
            for folder in (self.root, self.artifacts, self.runs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._unusable(f"{error.filename} is in the way, a file") from None
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise self._unusable("not writable")

    def read_only(self) -> bool:
        """Whether there is something to read, and nothing can be written."""
        places = (self.root, self.database)
        return self.database.exists() and not all(os.access(p, os.W_OK) for p in places)

    def _unusable(self, why: str) -> InvalidInput:
        hint = "set MUSTER_HOME to a folder you can write to"
        return InvalidInput(Problem("MUSTER_HOME", f"cannot use {self.root}: {why}", hint))


def default_home() -> Home:
    """$MUSTER_HOME, else `muster` in the XDG state directory. Raises InvalidInput if neither is
    known: a user without a home directory has to say."""
    given = os.environ.get("MUSTER_HOME")
    # XDG Base Directory Specification: paths must be absolute, others are to be ignored
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        if given:
            return Home(Path(given).expanduser().absolute())
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise InvalidInput(Problem("MUSTER_HOME", str(error), "set it to a full path")) from None
    return Home(base / "muster")
