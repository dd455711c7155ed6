"""Muster's own server in place of the Data Science service: a Muster that runs jobs on another."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from muster.engines.profiles import file_of, write_profile
from muster.spec.ocids import TENANCY
from muster.storage.home import Home
from support.command import muster
from support.keys import public_pem
from support.oci_config import config_of, write_config
from support.plugins import install_servers
from support.server_process import ServerProcess, admin_token

_TESTS = Path(__file__).parents[1]
#: The nodes of its runs are this user's, who also runs the tests.
_SETTINGS = "separate_owners = false\n"


class OciServer:
    """A server that runs jobs with its engine `local`, and a user of its API."""

    def __init__(self, folder: Path, home: Home, process: ServerProcess) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{process.port}"
        token = admin_token(home)
        public = folder / "public.pem"
        public.write_text(public_pem())
        environ = {**os.environ, "MUSTER_HOME": str(home.root)}
        environ |= {"MUSTER_URL": self.url, "MUSTER_TOKEN": token}
        process.start()
        process.wait_until_ready()
        words = ("users", "keys", "add", str(public), "--json")
        added = json.loads(muster(*words, code=0, env=environ).stdout)
        self.config = folder / "config"
        write_config(self.config, config_of(added["user"]))

    @cached_property
    def client(self) -> Any:
        """A client of Oracle's SDK."""
        from oci.config import from_file
        from oci.data_science import DataScienceClient

        return DataScienceClient(from_file(str(self.config)), service_endpoint=self.url)

    @cached_property
    def project(self) -> str:
        """The OCID of a project."""
        details = {"compartmentId": TENANCY, "displayName": "jobs"}
        return str(self.client.create_project(details).data.id)

    @cached_property
    def log_group(self) -> str:
        """The OCID of a log group."""
        from oci.config import from_file
        from oci.logging import LoggingManagementClient

        client = LoggingManagementClient(from_file(str(self.config)), service_endpoint=self.url)
        client.create_log_group({"compartmentId": TENANCY, "displayName": "jobs"})
        [group] = client.list_log_groups(TENANCY).data
        return str(group.id)

    @cached_property
    def bucket(self) -> str:
        """A bucket for messages, as in a profile."""
        from oci.config import from_file
        from oci.object_storage import ObjectStorageClient

        client = ObjectStorageClient(from_file(str(self.config)), service_endpoint=self.url)
        namespace = client.get_namespace().data
        client.create_bucket(namespace, {"compartmentId": TENANCY, "name": "jobs"})
        return f"oci://jobs@{namespace}/messages"

    def add_engine(self, home: Path, name: str = "oci", **settings: Any) -> None:
        """Write the profile of an engine that runs its nodes there."""
        values = {
            "compartment": TENANCY,
            "project": self.project,
            "endpoint": self.url,
            "config": str(self.config),
            "folder": str(home / "oci"),
            **settings,
        }
        text = 'kind = "oci"\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in values.items())
        write_profile(file_of(Home(home), name), text)


@contextmanager
def oci_server(engine: str = "local") -> Iterator[OciServer]:
    """One that ends with the block, as its runs do. engine: that of its runs."""
    folder = Path(tempfile.mkdtemp(prefix="oci-server-"))
    home = Home(folder / "home")
    home.root.mkdir()
    (home.root / "server.toml").write_text(f'{_SETTINGS}[oci]\nengine = "{engine}"\n')
    process = ServerProcess(home)
    try:
        yield OciServer(folder, home, process)
    finally:
        if process.process is not None and process.process.poll() is None:
            muster("cancel", "--all", "--yes", env={**os.environ, "MUSTER_HOME": str(home.root)})
            process.stop()
        shutil.rmtree(folder, ignore_errors=True)


@cache
def shared_server() -> OciServer:
    """One for all tests of this process, which ends with it. Its nodes are processes of this
    machine, without namespaces, as the tests look at them."""
    site = Path(tempfile.mkdtemp(prefix="oci-site-"))
    install_servers(site)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_TESTS), str(site), before])
    server = oci_server("shaped")
    made = server.__enter__()
    os.environ["PYTHONPATH"] = before

    def end() -> None:
        server.__exit__(None, None, None)
        shutil.rmtree(site, ignore_errors=True)

    atexit.register(end)
    return made
