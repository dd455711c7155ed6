"""What Muster knows about the protocols of fsspec URLs, in one table."""

from __future__ import annotations

from typing import Any, NamedTuple

_AWS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials"
_OCI = (
    "`oci setup config` writes ~/.oci/config, which OCIFS_IAM_TYPE=api_key uses; on OCI, set "
    "OCIFS_IAM_TYPE=resource_principal"
)
_GOOGLE = "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"

_MEMORY = "lives in the memory of one process; no other node sees it"
_ARCHIVE = "is one archive, in which nodes cannot write side by side"
_CACHE = "reads from a copy, so nodes would not see what others write"
_WEB = "can only be read"
#: Why a work directory cannot be in a repository; callers have another hint for it.
GIT_IS_COMMITTED = "holds what was committed; nothing can be written there"


class Protocol(NamedTuple):
    """One protocol."""

    #: The module and the package of the back end, where fsspec's own registry does not name them.
    module: str = ""
    package: str = ""
    #: How a user provides credentials; "" if Muster does not know.
    credentials: str = ""
    #: Why a URL of this protocol cannot be a work directory; "" if it can.
    not_a_work_dir: str = ""


#: The protocols that need more than fsspec's registry.
PROTOCOLS = {
    "s3": Protocol("s3fs", "s3fs", _AWS),
    "s3a": Protocol("s3fs", "s3fs", _AWS),
    "gs": Protocol("gcsfs", "gcsfs", _GOOGLE),
    "gcs": Protocol("gcsfs", "gcsfs", _GOOGLE),
    "oci": Protocol("ocifs", "ocifs", _OCI),
    "abfs": Protocol("adlfs", "adlfs"),
    "abfss": Protocol("adlfs", "adlfs"),
    "az": Protocol("adlfs", "adlfs"),
    "http": Protocol("aiohttp", "aiohttp", not_a_work_dir=_WEB),
    "https": Protocol("aiohttp", "aiohttp", not_a_work_dir=_WEB),
    "sftp": Protocol("paramiko", "paramiko"),
    "ssh": Protocol("paramiko", "paramiko"),
    "smb": Protocol("smbprotocol", "smbprotocol"),
    "hdfs": Protocol("pyarrow", "pyarrow"),
    "memory": Protocol(not_a_work_dir=_MEMORY),
    **dict.fromkeys(("data", "dvc", "pyscript", "reference"), Protocol(not_a_work_dir=_WEB)),
    **dict.fromkeys(("zip", "tar", "libarchive"), Protocol(not_a_work_dir=_ARCHIVE)),
    **dict.fromkeys(
        ("cached", "blockcache", "filecache", "simplecache"), Protocol(not_a_work_dir=_CACHE)
    ),
    **dict.fromkeys(("git", "gitfs", "github", "gist"), Protocol(not_a_work_dir=GIT_IS_COMMITTED)),
}
_UNLISTED = Protocol()


def protocol_named(name: str) -> Protocol:
    """The entry of a protocol; an empty one if the table has none."""
    return PROTOCOLS.get(name, _UNLISTED)


def is_local(file_system: Any) -> bool:
    """Whether an fsspec file system is this machine's."""
    names = file_system.protocol
    return "file" in ([names] if isinstance(names, str) else names)


def remove_file(file_system: Any, path: str) -> None:
    """Remove a file of an fsspec file system, whose name has no characters of a pattern. Raises
    what the file system raises."""
    try:
        file_system.rm_file(path)
    except NotImplementedError:  # ocifs has only the other one, which takes patterns
        file_system.rm(path)
