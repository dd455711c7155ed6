"""Explain the errors that fsspec back ends raise: what went wrong, and what a user can do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from muster.secrets import redacted
from muster.storage.protocols import is_local, protocol_named

Kind = Literal["credentials", "denied", "unreachable", "bucket", "package", ""]

#: How the names of errors about missing credentials start, over all back ends.
_NO_CREDENTIALS = ("NoCredentials", "CredentialRetrieval", "DefaultCredentials",
                   "ConfigFileNotFound", "InvalidConfig", "PartialCredentials",
                   "ProfileNotFound")  # fmt: skip
#: The S3 permissions that each operation needs.
_S3_ACTIONS = {"written": "s3:PutObject", "read": "s3:GetObject and s3:ListBucket"}


def describe_error(url: str, fs: Any, root: str, doing: str, error: Exception) -> str:
    """One sentence with a hint. Parameters as for `error_hint`."""
    shown, kind = redacted(url), _kind(fs, error)
    hint = error_hint(url, fs, root, doing, error) or "check the URL"
    if kind == "credentials":
        return f"{shown}: no credentials were found ({hint})"
    if kind == "denied":
        return f"{shown} cannot be {doing}: permission denied ({hint})"
    if kind == "bucket":
        return f"{shown}: no bucket {bucket_of(root)} ({hint})"
    if kind == "unreachable":
        return f"{shown} cannot be reached: {error_text(error)} ({hint})"
    return f"{shown} cannot be {doing}: {error_text(error)} ({hint})"


def error_hint(url: str, fs: Any, root: str, doing: str, error: Exception) -> str:
    """What to do about an error of a back end; "" if Muster does not know the error.

    fs: the file system; None if it could not be created. root: the path in it. doing: `read` or
    `written`.
    """
    protocol = url.rpartition("::")[2].partition("://")[0]
    match _kind(fs, error):
        case "credentials":
            return protocol_named(protocol).credentials or "give this user credentials"
        case "denied":
            return _permission_hint(protocol, root, doing)
        case "bucket":
            return "create it first, or check its name"
        case "package":
            return "pip install the package it names"
        case "unreachable":
            return "check the address of the store, the proxy and the firewall"
    return ""


def is_unreachable(error: Exception) -> bool:
    """Whether the store did not answer. Some back ends raise FileNotFoundError then."""
    names = [type(one).__name__ for one in _chain(error)]
    return any("Connect" in name or "Timeout" in name for name in names)


def bucket_of(root: str) -> str:
    """The first part of a path in an object store."""
    return root.lstrip("/").partition("/")[0]


def error_text(error: Exception) -> str:
    """The error's text on one line, without secrets; its type if it has none."""
    text = " ".join(redacted(str(error)).split())
    return text[:300] or type(error).__name__


def _kind(fs: Any, error: Exception) -> Kind:
    names = [type(one).__name__ for one in _chain(error)]
    if any(name.startswith(_NO_CREDENTIALS) for name in names):
        return "credentials"
    if _is_denied(error):
        return "denied"
    if is_unreachable(error):
        return "unreachable"
    if isinstance(error, FileNotFoundError) and fs is not None and not is_local(fs):
        return "bucket"
    return "package" if isinstance(error, ImportError) else ""


def _is_denied(error: Exception) -> bool:
    """OCI answers 404 with a special code to users who may not know that the object exists."""
    codes = [getattr(one, "code", None) for one in _chain(error)]
    statuses = [getattr(one, "status", None) for one in _chain(error)]
    refused = any(isinstance(status, int) and status in (401, 403) for status in statuses)
    return isinstance(error, PermissionError) or refused or "NotAuthorizedOrNotFound" in codes


def _permission_hint(protocol: str, root: str, doing: str) -> str:
    """What an administrator has to allow."""
    bucket = bucket_of(root).partition("@")[0]
    if protocol == "oci":
        verb = "manage" if doing == "written" else "read"
        return (
            f"policy: Allow dynamic-group GROUP to {verb} objects in compartment COMPARTMENT "
            f"where all {{target.bucket.name='{bucket}'}}; for a user, `group GROUP`"
        )
    if protocol in ("s3", "s3a"):
        return f"allow {_S3_ACTIONS[doing]} on {bucket}, or use other credentials"
    return f"let this user {'write' if doing == 'written' else 'read'} there"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
