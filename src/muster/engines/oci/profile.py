"""The profile of an engine `oci` (`engines.profiles`): where jobs are created, on what, and how the
service and this machine reach each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from muster.addresses import is_on_loopback
from muster.engines.remote.port_range import port_problems, read_ports
from muster.errors import InvalidInput, Problem
from muster.spec.wording import say, suggestion

#: How requests are signed.
AUTHS = ("api_key", "security_token", "resource_principal", "instance_principal")
#: The least and the most block storage of a node, in GB.
LEAST_DISK, MOST_DISK = 50, 1024
_BUCKET = re.compile(r"oci://([\w.-]+)@([\w.-]+)(/[^\s?#]*)?")
_PYTHON = re.compile(r"[^\s\"'\\]+")


class Place(Struct, frozen=True):
    """A bucket, and where in it."""

    namespace: str
    bucket: str
    #: What all names there begin with: "", or it ends with a slash.
    prefix: str

    def folder(self, run_id: str) -> str:
        """The folder of a run, which ends with a slash."""
        return f"{self.prefix}muster/{run_id}/"


class OciProfile(Struct, frozen=True):
    """The settings of an engine `oci`."""

    #: The OCIDs of the compartment and the project in which jobs are created.
    compartment: str
    project: str
    #: The shape of nodes whose group names none.
    shape: str = "VM.Standard.E4.Flex"
    #: The size of a flexible shape where the job does not say; None: that of `muster shapes`.
    ocpus: float | None = None
    memory_gb: float | None = None
    #: Block storage of a node, unless its group has `resources.disk`.
    disk_gb: int = LEAST_DISK
    #: The OCID of the subnet of nodes; None: the network that the service manages.
    subnet: str | None = None
    #: The OCIDs of the log group in which the service makes a log for each job run, and of a log
    #: there in which it writes instead; None: no log.
    log_group: str | None = None
    log: str | None = None
    #: The image of nodes whose group names none; None: the service's own environment.
    image: str | None = None
    #: The Python of images that runs the node program and jobs.
    python: str = "python3"
    #: Variables of job runs: those by which the service provides a conda environment, for instance.
    environment: Mapping[str, str] = {}
    #: NFS export -> `MOUNT_TARGET_OCID:EXPORT_OCID`, for mounts of file storage.
    file_systems: Mapping[str, str] = {}
    #: The file with credentials, and the profile in it.
    config: str = "~/.oci/config"
    config_profile: str = "DEFAULT"
    auth: str = "api_key"
    #: In place of the one in the file.
    region: str | None = None
    #: The URL of the Data Science service; None: that of the region.
    endpoint: str | None = None
    #: The address at which nodes reach this machine; None: there is none, unless nodes are on it.
    address: str | None = None
    #: The address of this machine where nodes are listened for; None: `address`, or all.
    listen: str | None = None
    #: The first and the last port where they are; None: any.
    ports: tuple[int, int] | None = None
    #: The bucket through which nodes and this machine reach each other where there is no `address`:
    #: `oci://BUCKET@NAMESPACE/PREFIX`.
    bucket: str | None = None
    #: Whether nodes of a run share a job run; else each has one.
    multi_node: bool = True
    #: Where nodes have their files, on each of them.
    folder: str = "~/.local/state/muster-nodes"
    #: Whether jobs stay in the service when their run does not need them any more.
    keep_jobs: bool = False

    @property
    def place(self) -> Place | None:
        """Where messages go through a bucket; None: nodes dial this machine."""
        return None if self.bucket is None else _read_place(self.bucket)

    @property
    def is_here(self) -> bool:
        """Whether the service is on this machine, and so are its nodes."""
        url = self.endpoint or ""
        return is_on_loopback(url) or (urlsplit(url).hostname or "").endswith(".localhost")


def _read_place(text: str) -> Place | None:
    """None if it is no URL of a bucket."""
    found = _BUCKET.fullmatch(text)
    if found is None:
        return None
    prefix = (found[3] or "").strip("/")
    return Place(found[2], found[1], f"{prefix}/" if prefix else "")


_KEYS = OciProfile.__struct_fields__
#: Settings whose values are texts with no spaces.
_WORDS = (
    *("compartment", "project", "shape", "subnet", "log_group", "log", "image", "region"),
    *("address", "listen", "config_profile"),
)
_NUMBERS = {"ocpus": "OCPUs", "memory_gb": "GB"}
_TABLES = {
    "environment": 'as in {CONDA_ENV_TYPE = "service", CONDA_ENV_SLUG = "pytorch26_p311_gpu_v1"}',
    "file_systems": 'as in {"10.0.0.5:/data" = "MOUNT_TARGET_OCID:EXPORT_OCID"}',
}


def read_settings(table: Mapping[str, Any]) -> OciProfile:
    """The profile with these settings, as TOML has them. Raises InvalidInput with every problem;
    their paths are keys."""
    if problems := list(_problems(table)):
        raise InvalidInput(*problems)
    given = {key: table[key] for key in _KEYS if key in table}
    if "ports" in given:
        given["ports"] = read_ports(given["ports"])
    return OciProfile(**given)


def _problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    for key in table:
        if key not in _KEYS:
            hint = suggestion(key, _KEYS) or f"there are {', '.join(_KEYS)}"
            yield Problem(key, "unknown setting", hint)
    for key in ("compartment", "project"):
        if key not in table:
            yield Problem(key, "is missing", f"give the OCID of the {key} for the jobs")
    for key in _WORDS:
        value = table.get(key, "x")
        if not isinstance(value, str) or not value.isprintable() or value.split() != [value]:
            yield Problem(key, f"must be a text without spaces, not {say(value)}")
    for key, unit in _NUMBERS.items():
        number = table.get(key, 1)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number <= 0:
            yield Problem(key, f"must be a number of {unit} above 0, not {say(number)}")
    disk = table.get("disk_gb", LEAST_DISK)
    if isinstance(disk, bool) or not isinstance(disk, int) or not LEAST_DISK <= disk <= MOST_DISK:
        yield Problem("disk_gb", f"must be from {LEAST_DISK} to {MOST_DISK}, not {say(disk)}")
    for key, example in _TABLES.items():
        if not _is_table_of_texts(table.get(key, {})):
            yield Problem(key, f"must be a table of texts, not {say(table[key])}", example)
        elif key == "file_systems":
            yield from _file_system_problems(table.get(key, {}))
    yield from _connection_problems(table)


def _is_table_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _file_system_problems(table: Mapping[str, str]) -> Iterator[Problem]:
    for source, ids in table.items():
        target, _, export = ids.partition(":")
        if not target or not export or ":" in export:
            yield Problem(
                f"file_systems.{source}", f"must be MOUNT_TARGET_OCID:EXPORT_OCID, not {say(ids)}"
            )


def _connection_problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    auth = table.get("auth", AUTHS[0])
    if auth not in AUTHS:
        yield Problem("auth", f"must be {', '.join(AUTHS[:-1])} or {AUTHS[-1]}, not {say(auth)}")
    endpoint = table.get("endpoint", "https://x")
    if not isinstance(endpoint, str) or not endpoint.startswith(("http://", "https://")):
        yield Problem("endpoint", f"must be an http or https URL, not {say(endpoint)}")
    yield from port_problems(table)
    for key in ("config", "folder"):
        path = table.get(key, "/")
        if not isinstance(path, str) or not path.startswith(("/", "~/")):
            yield Problem(key, f"must be a path from / or ~/, not {say(path)}")
    python = table.get("python", "python3")
    if not isinstance(python, str) or not _PYTHON.fullmatch(python):
        hint = "a path in the image, or the name of a program there"
        yield Problem("python", f"must be an interpreter, not {say(python)}", hint)
    yield from _bucket_problems(table)
    for key in ("keep_jobs", "multi_node"):
        if not isinstance(table.get(key, False), bool):
            yield Problem(key, f"must be true or false, not {say(table[key])}")


def _bucket_problems(table: Mapping[str, Any]) -> Iterator[Problem]:
    if "bucket" not in table:
        return
    text = table["bucket"]
    if not isinstance(text, str) or _read_place(text) is None:
        hint = "as in oci://jobs@mytenancy/messages"
        yield Problem("bucket", f"must be oci://BUCKET@NAMESPACE/PREFIX, not {say(text)}", hint)
    for key in ("address", "listen", "ports"):
        if key in table:
            hint = f"nodes that use the bucket do not dial this machine: leave out {key}, or bucket"
            yield Problem(key, "does not go with bucket", hint)
