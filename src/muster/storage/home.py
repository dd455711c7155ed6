"""The layout of MUSTER_HOME, which contains all of Muster's data, and of each run's folder."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from muster.errors import InvalidInput, Problem
from muster.file_locks import NoLocks, check_locks
from muster.file_system import file_system_of
from muster.unix_account import as_root


class RunDir(Struct, frozen=True):
    """The folder of one run."""

    path: Path

    @property
    def home(self) -> Home:
        """The one that the run belongs to."""
        return Home(self.path.parent.parent)

    @property
    def lock(self) -> Path:
        """Locked by the process that drives the run."""
        return self.path / "lease"

    @property
    def wakeup(self) -> Path:
        """A FIFO that wakes the supervisor."""
        return self.path / "bell"

    @property
    def cluster_file(self) -> Path:
        """The nodes of the run (OCI: the cluster metadata file)."""
        return self.path / "cluster.json"

    @property
    def resolver(self) -> Path:
        """The nodes' /etc/resolv.conf, if the run has a separate network."""
        return self.path / "resolv.conf"

    @property
    def namespace(self) -> Path:
        """The run's network namespace, while its uplink starts."""
        return self.path / "namespace"

    @property
    def liveness_pipe(self) -> Path:
        """A FIFO that the supervisor holds open until the outcome is recorded."""
        return self.path / "life"

    @property
    def event_notification(self) -> Path:
        """Grows by a byte with every recorded step of the run, for `events --follow`."""
        return self.path / "pulse"

    @property
    def usage(self) -> Path:
        """What the nodes have used (`storage.usage`)."""
        return self.path / "usage.json"

    @property
    def environ(self) -> Path:
        """The base environment of the nodes, for a process that recovers the run."""
        return self.path / "environ"

    @property
    def supervisor_log(self) -> Path:
        """The supervisor's own output; empty unless it fails."""
        return self.path / "supervisor.log"

    @property
    def mounts(self) -> Path:
        """Local copies of mounts by URL."""
        return self.path / "mounts"

    @property
    def sent(self) -> Path:
        """Mounted directories as nodes on other machines have them."""
        return self.path / "sent"

    @property
    def hosts(self) -> Path:
        """The machines of its nodes, of an engine `hosts`."""
        return self.path / "hosts.json"

    @property
    def containers(self) -> Path:
        """The folder with one for each node in a container, and with the containers' record."""
        return self.path / "containers"

    @property
    def endpoints(self) -> Path:
        """The addresses of the run's cluster, by name."""
        return self.path / "endpoints.json"

    @property
    def token(self) -> Path:
        """The run's secret for clients of its cluster; private to the owner."""
        return self.path / "token"

    @property
    def tls(self) -> Path:
        """The folder with the certificates of the run's nodes."""
        return self.path / "tls"

    @property
    def contact(self) -> Path:
        """The folder with the secrets by which nodes that dial the supervisor, and the supervisor,
        prove who they are; private to the owner."""
        return self.path / "contact"

    @property
    def principal(self) -> Path:
        """The folder with the credentials of the run's programs (`storage.run_credentials`);
        private to the owner."""
        return self.path / "principal"

    @property
    def arguments(self) -> Path:
        """The pickled arguments of a function; private to the owner."""
        return self.path / "arguments.pickle"

    @property
    def outputs(self) -> Path:
        """What programs write to keep it with the run: the directory that its nodes share, with one
        for each node in it. Any engine collects outputs into this layout."""
        return self.path / "outputs"

    def output(self, rank: int, *, own: bool) -> Path:
        """$MUSTER_OUTPUTS of one node. own: `RunPlan.node_outputs`."""
        return self.outputs / f"rank-{rank}" if own else self.outputs

    @property
    def results(self) -> Path:
        """What a function returned in each process, or raised."""
        return self.path / "results"

    def scratch(self, name: str) -> Path:
        """A directory that all nodes of the run share."""
        return self.path / "scratch" / name

    def node(self, slot: int) -> Path:
        """The folder of the node in a slot (`RunPlan.slot_of`)."""
        return self.path / "nodes" / str(slot)

    def nodes(self) -> list[Path]:
        """The folders of all nodes, in no order."""
        folder = self.path / "nodes"
        names = os.listdir(folder) if folder.is_dir() else []
        return [folder / name for name in names if name.isdigit()]

    def work(self, slot: int) -> Path:
        """The working directory of a node's processes: its own copy of the code."""
        return self.node(slot) / "work"

    def overlay(self, slot: int) -> Path:
        """Exists if the working directory was the upper layer over the stored code: it has only
        what the node changed."""
        return self.node(slot) / "overlay"

    @property
    def service_log(self) -> Path:
        """Muster's messages about the run."""
        return self.path / "logs" / "service.log"

    def logs(self, attempt: int) -> Path:
        """The folder with the nodes' output in one attempt."""
        return self.path / "logs" / str(attempt)


class Home(Struct, frozen=True):
    """MUSTER_HOME."""

    root: Path

    @property
    def database(self) -> Path:
        return self.root / "muster.db"

    @property
    def oidc(self) -> Path:
        """The settings of logins at a server (`iam.oidc.settings`), which the user may create."""
        return self.root / "oidc.toml"

    @property
    def database_url(self) -> Path:
        """The URL of the PostgreSQL database that has the records in place of `database`, in one
        line; private to the owner, as it may have a password. Supervisors and commands of this
        MUSTER_HOME read it. Without the file, the records are in `database`."""
        return self.root / "database_url"

    @property
    def database_id(self) -> Path:
        """An id that the database named by `database_url` has, too: no other MUSTER_HOME may use
        it, since the files of its runs are here."""
        return self.root / "database_id"

    @property
    def records(self) -> Path:
        """The file with the records, or with the URL of their database. It exists as long as this
        MUSTER_HOME is in use."""
        return self.database_url if self.database_url.exists() else self.database

    @property
    def secret_key(self) -> Path:
        """The key that secrets in the database are encrypted with (`sealing`); private to the
        owner."""
        return self.root / "secret.key"

    @property
    def reserve(self) -> Path:
        """Disk space for the writes of `database` (`store.sqlite.disk_reserve`)."""
        return self.root / "reserve"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def artifact(self, sha256: str) -> Path:
        """Where code with this digest is stored: a file or, for a folder's, a folder
        (`code_trees`)."""
        return self.artifacts / sha256[:2] / sha256

    def new_part(self) -> Path:
        """A path for code that is being stored. If the process is killed, the next one that stores
        code removes it (`ArtifactLock`)."""
        return self.artifacts / f".part-{os.getpid()}-{os.urandom(6).hex()}"

    @property
    def objects(self) -> Path:
        """The bytes of the server's object storage (`storage.objects`)."""
        return self.root / "objects"

    @property
    def uploads(self) -> Path:
        """What clients of a server upload (`storage.uploads`)."""
        return self.root / "uploads"

    @property
    def sent(self) -> Home:
        """The code that was sent to servers last, laid out as MUSTER_HOME is
        (`client.http.code`)."""
        return Home(self.root / "sent")

    @property
    def custom_logs(self) -> Path:
        """Entries of logs of the OCI API (`storage.custom_logs`)."""
        return self.root / "custom-logs"

    @property
    def metric_points(self) -> Path:
        """Points of metrics of the OCI API (`storage.metric_points`)."""
        return self.root / "metric-points"

    @property
    def oci_certificate(self) -> Path:
        """The server's certificate for the names of OCI's services, with the authority."""
        return self.root / "oci-certificate"

    @property
    def oci_region(self) -> Path:
        """What the server that runs here is called as a region of OCI."""
        return self.root / "oci-region"

    @property
    def job_artifacts(self) -> Path:
        """Artifacts of jobs of the OCI API, as they were uploaded (`storage.job_artifacts`)."""
        return self.root / "job-artifacts"

    @property
    def requests(self) -> Path:
        """What was requested with which idempotency key (`storage.request_keys`)."""
        return self.root / "requests"

    @property
    def artifacts_lock(self) -> Path:
        """Locked by processes that store or delete code (`ArtifactLock`)."""
        return self.root / "artifacts.lock"

    @property
    def node_programs(self) -> Path:
        """The node programs that containers mount, each in a folder."""
        return self.root / "node-programs"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def config(self) -> Path:
        """The settings of this MUSTER_HOME (`storage.config`)."""
        return self.root / "config.toml"

    @property
    def server(self) -> Path:
        """The settings of a server of this MUSTER_HOME (`server.settings`)."""
        return self.root / "server.toml"

    @property
    def contexts(self) -> Path:
        """The servers that the user has logged in to (`client.contexts`)."""
        return self.root / "contexts.json"

    @property
    def engines(self) -> Path:
        """The folder of the profiles of engines (`engines.profiles`)."""
        return self.root / "engines"

    @property
    def shapes(self) -> Path:
        """The user's shapes, which complement those of Muster."""
        return self.root / "shapes.yaml"

    @property
    def checkouts(self) -> Path:
        """Temporary checkouts of git repositories, while their files are stored."""
        return self.of_host("checkouts")

    @property
    def digests(self) -> Path:
        """Digests of the files of folders whose code was stored (`digest_cache`)."""
        return self.root / "digests"

    @property
    def environments(self) -> Path:
        """The environments that were installed for runs."""
        return self.root / "environments"

    @property
    def owners(self) -> Path:
        """The accounts of owners, and the folder of each (`storage.owners`)."""
        return self.root / "owners"

    @property
    def volumes(self) -> Path:
        """The directories that runs share and that outlive them."""
        return self.root / "volumes"

    def volume(self, name: str) -> Path:
        """One of `volumes`."""
        return self.volumes / name

    def of_host(self, name: str) -> Path:
        """A file about the resources of this host: where several hosts may share MUSTER_HOME, each
        has its own, `NAME.HOST`."""
        shared = file_system_of(self.root).shared
        return self.root / (f"{name}.{os.uname().nodename}" if shared else name)

    def run_dir(self, run_id: str) -> RunDir:
        return RunDir(self.runs / run_id)

    @as_root()
    def prepare(self) -> None:
        """Create missing folders, private to the owner. Raises InvalidInput if that fails, NoLocks
        if nothing may be written to their file system."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_locks(self.root)
            for folder in (self.artifacts, self.runs):
                folder.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise self._unusable(f"{error.filename} is a file; a folder is needed there") from None
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise self._unusable("not writable")

    def read_only(self) -> bool:
        """Whether the records exist, and MUSTER_HOME cannot be written, or not safely."""
        records = self.records
        if not records.exists():
            return False
        places = (self.root, records) if records == self.database else (self.root,)
        if not all(os.access(p, os.W_OK) for p in places):
            return True
        try:
            check_locks(self.root)
        except NoLocks:
            return True
        return False

    def check_writable(self) -> None:
        """Raises InvalidInput if the database exists and cannot be written, NoLocks."""
        check_locks(self.root)
        if self.read_only():
            raise self._unusable("it is read-only")

    def _unusable(self, why: str) -> InvalidInput:
        hint = "set MUSTER_HOME to a folder you can write to"
        return InvalidInput(Problem("MUSTER_HOME", f"cannot use {self.root}: {why}", hint))


def default_home() -> Home:
    """$MUSTER_HOME, else `muster` in the XDG state directory. Raises InvalidInput if neither is
    known, because the user has no home directory."""
    given = os.environ.get("MUSTER_HOME")
    # XDG Base Directory Specification: relative paths must be ignored
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        if given:
            return Home(Path(given).expanduser().absolute())
        base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise InvalidInput(Problem("MUSTER_HOME", str(error), "set it to a full path")) from None
    return Home(base / "muster")
