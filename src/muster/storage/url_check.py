"""Check that URLs can be read and written: `python -m muster.storage.url_check`.

`muster check` starts it as a separate process, because storage libraries are slow to import and may
block. Reads a JSON list of {"url", "write"} from stdin. Prints one JSON line per URL as soon as its
result is known: its index in the list, whether the URL can be used, and a sentence. A URL that is
written to is left as it was.
"""

from __future__ import annotations

import json
import posixpath
import secrets
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from muster.secrets import redacted
from muster.storage.protocols import is_local, remove_file
from muster.storage.url_errors import bucket_of, describe_error, error_text, is_unreachable

_CONTENT = b"muster check"


def check_url(url: str, *, write: bool) -> tuple[bool, str]:
    """Whether a URL can be used, and a sentence.

    write: whether the job writes to it; otherwise it must contain a file.
    """
    import fsspec

    try:
        # a cached listing could be out of date
        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except Exception as error:  # noqa: BLE001  each back end raises its own errors
        return False, describe_error(url, None, "", "read", error)
    return (_check_write if write else _check_read)(fs, root.rstrip("/"), url)


def _check_write(fs: Any, root: str, url: str) -> tuple[bool, str]:
    shown, doing = redacted(url), "written"
    path = f"{root}/.muster-check-{secrets.token_hex(5)}"
    try:
        if is_local(fs):
            fs.makedirs(root, exist_ok=True)
        fs.pipe_file(path, _CONTENT)
        doing = "read"
        if fs.cat_file(path) != _CONTENT:
            return False, f"{shown} returns other bytes than were written"
    except Exception as error:  # noqa: BLE001
        return False, describe_error(url, fs, root, doing, error)
    try:
        remove_file(fs, path)
    except Exception as error:  # noqa: BLE001
        name = posixpath.basename(path)
        text = f"{name} could not be deleted: {error_text(error)}"
        return True, f"{shown} can be read and written; {text}"
    return True, f"{shown} can be read and written"


def _check_read(fs: Any, root: str, url: str) -> tuple[bool, str]:
    shown = redacted(url)
    try:
        path = _find_file(fs, root)
        if path is not None:
            fs.cat_file(path, end=1)
            return True, f"{shown} can be read"
    except Exception as error:  # noqa: BLE001
        return False, describe_error(url, fs, root, "read", error)
    return False, f"{shown}: not found (check the path, or copy the files there)"


def _find_file(fs: Any, root: str) -> str | None:
    """A file at the root or below it; None if none exists. Raises the back end's errors."""
    try:
        if fs.info(root)["type"] == "file":
            return root
    except FileNotFoundError as error:
        if is_unreachable(error):
            raise
        _require_bucket(fs, root)
        return None
    for folder, _, files in fs.walk(root, on_error="raise"):
        if files:
            return f"{folder}/{sorted(files)[0]}"
    return None


def _require_bucket(fs: Any, root: str) -> None:
    """Raise FileNotFoundError if the bucket does not exist."""
    if not is_local(fs) and "://" not in root:  # the root of a web address is the URL
        fs.ls(bucket_of(root))


def main() -> int:
    """Check all URLs concurrently."""
    urls: Sequence[dict[str, Any]] = json.load(sys.stdin)
    with ThreadPoolExecutor(16) as pool:
        checks = {
            pool.submit(check_url, one["url"], write=one["write"]): n for n, one in enumerate(urls)
        }
        for check in as_completed(checks):
            print(json.dumps([checks[check], *check.result()]), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
