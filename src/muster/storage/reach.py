"""Whether URLs can be read and written: `python -m muster.storage.reach`, for `muster check`.

A process of its own, as back ends are heavy and may wait for ever. Reads JSON from stdin: a list of
{"url", "write"}; prints, for each as soon as it is known, one line: its place in the list, whether
all is well, and what was found. Where it may write, it leaves nothing behind.
"""

from __future__ import annotations

import json
import posixpath
import secrets
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from muster.secrets import redacted

_CONTENT = b"muster check"
#: What back ends call a lack of credentials, in the names of their errors.
_ANONYMOUS = ("NoCredentials", "CredentialRetrieval", "DefaultCredentials", "ConfigFileNotFound",
              "InvalidConfig", "PartialCredentials", "ProfileNotFound")  # fmt: skip
#: How each finds them.
_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials",
    "oci": "`oci setup config` writes ~/.oci/config; on OCI, set OCIFS_IAM_TYPE=resource_principal",
    "gs": "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
}
_CREDENTIALS |= {"s3a": _CREDENTIALS["s3"], "gcs": _CREDENTIALS["gs"]}
#: What has to be allowed, by what is refused: S3's words.
_ACTIONS = {"written": "s3:PutObject", "read": "s3:GetObject and s3:ListBucket"}


def look_at(url: str, *, write: bool) -> tuple[bool, str]:
    """Whether all is well, and a sentence. write: whether it has to be written to; otherwise
    something has to be there."""
    import fsspec

    try:
        # what is remembered of another look would not be true now
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except Exception as error:  # noqa: BLE001  back ends raise what they like
        return False, _refused(url, None, "", "read", error)
    return (_write if write else _read)(fs, root.rstrip("/"), url)


def _write(fs: Any, root: str, url: str) -> tuple[bool, str]:
    shown, doing = redacted(url), "written"
    path = f"{root}/.muster-check-{secrets.token_hex(5)}"
    try:
        if _is_local(fs):
            fs.makedirs(root, exist_ok=True)
        fs.pipe_file(path, _CONTENT)
        doing = "read"
        if fs.cat_file(path) != _CONTENT:
            return False, f"{shown} gives back other bytes than were written"
    except Exception as error:  # noqa: BLE001
        return False, _refused(url, fs, root, doing, error)
    try:
        fs.rm_file(path)
    except Exception as error:  # noqa: BLE001
        name = posixpath.basename(path)
        return True, f"{shown} can be read and written; {name} stays there: {_words(error)}"
    return True, f"{shown} can be read and written"


def _read(fs: Any, root: str, url: str) -> tuple[bool, str]:
    shown = redacted(url)
    try:
        path = _some_file(fs, root)
        if path is not None:
            fs.cat_file(path, end=1)
            return True, f"{shown} can be read"
    except Exception as error:  # noqa: BLE001
        return False, _refused(url, fs, root, "read", error)
    return False, f"{shown}: nothing is there (check the path, or copy there what is to be read)"


def _some_file(fs: Any, root: str) -> str | None:
    """A file at the root or below it; None if there is none. Raises what the back end does."""
    try:
        if fs.info(root)["type"] == "file":
            return root
    except FileNotFoundError as error:
        if _is_away(error):
            raise
        _need_bucket(fs, root)  # which may be what is missing
        return None
    for folder, _, files in fs.walk(root, on_error="raise"):
        if files:
            return f"{folder}/{sorted(files)[0]}"
    return None


def _need_bucket(fs: Any, root: str) -> None:
    """Raises FileNotFoundError if it is not there."""
    if not _is_local(fs) and "://" not in root:  # of the web, the root is the URL
        fs.ls(_bucket_of(root))


def _is_local(fs: Any) -> bool:
    return "file" in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol)


def _refused(url: str, fs: Any, root: str, doing: str, error: Exception) -> str:
    """One sentence, and the way out."""
    shown, kind = redacted(url), _kind(fs, error)
    hint = way_out(url, fs, root, doing, error) or "check the URL"
    if kind == "anonymous":
        return f"{shown}: no credentials were found ({hint})"
    if kind == "denied":
        return f"{shown} cannot be {doing}: permission denied ({hint})"
    if kind == "bucket":
        return f"{shown}: there is no bucket {_bucket_of(root)} ({hint})"
    if kind == "away":
        return f"{shown} is not reached: {_words(error)} ({hint})"
    return f"{shown} cannot be {doing}: {_words(error)} ({hint})"


def way_out(url: str, fs: Any, root: str, doing: str, error: Exception) -> str:
    """What to do about an error that a back end raised; empty if that is not known. fs: None if
    there is none yet. root: the path in it; doing: `read` or `written`."""
    protocol = url.rpartition("::")[2].partition("://")[0]
    match _kind(fs, error):
        case "anonymous":
            return _CREDENTIALS.get(protocol, "give this user credentials")
        case "denied":
            return _policy(protocol, root, doing)
        case "bucket":
            return "make it first, or check its name"
        case "package":
            return "pip install what it names"
        case "away":
            return "check the address of the store, the proxy and the firewall"
    return ""


def _kind(fs: Any, error: Exception) -> str:
    names = [type(one).__name__ for one in _chain(error)]
    if any(name.startswith(_ANONYMOUS) for name in names):
        return "anonymous"
    if _is_denied(error):
        return "denied"
    if _is_away(error):
        return "away"
    if isinstance(error, FileNotFoundError) and fs is not None and not _is_local(fs):
        return "bucket"
    return "package" if isinstance(error, ImportError) else ""


def _is_away(error: Exception) -> bool:
    """Some back ends say of a store that does not answer that the file is not there."""
    names = [type(one).__name__ for one in _chain(error)]
    return any("Connect" in name or "Timeout" in name for name in names)


def _bucket_of(root: str) -> str:
    return root.lstrip("/").partition("/")[0]


def _is_denied(error: Exception) -> bool:
    """OCI answers 404 to whoever may not know whether there is something, with its own code."""
    codes = [getattr(one, "code", None) for one in _chain(error)]
    status = [getattr(one, "status", None) for one in _chain(error)]
    unknown = "NotAuthorizedOrNotFound" in codes or {401, 403} & set(filter(_is_number, status))
    return isinstance(error, PermissionError) or bool(unknown)


def _is_number(value: Any) -> bool:
    return isinstance(value, int)


def _policy(protocol: str, root: str, doing: str) -> str:
    """What an administrator has to allow."""
    bucket = _bucket_of(root).partition("@")[0]
    if protocol == "oci":
        verb = "manage" if doing == "written" else "read"
        return (
            f"policy: Allow dynamic-group GROUP to {verb} objects in compartment COMPARTMENT "
            f"where all {{target.bucket.name='{bucket}'}}; for a user, `group GROUP`"
        )
    if protocol in ("s3", "s3a"):
        return f"allow {_ACTIONS[doing]} on {bucket}, or use other credentials"
    return f"let this user {'write' if doing == 'written' else 'read'} there"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _words(error: Exception) -> str:
    said = " ".join(redacted(str(error)).split())
    return said[:300] or type(error).__name__


def main() -> int:
    """Look at all of them at once."""
    asked: Sequence[dict[str, Any]] = json.load(sys.stdin)
    with ThreadPoolExecutor(16) as pool:
        looks = {
            pool.submit(look_at, one["url"], write=one["write"]): n for n, one in enumerate(asked)
        }
        for look in as_completed(looks):
            print(json.dumps([looks[look], *look.result()]), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
