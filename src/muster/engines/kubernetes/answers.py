"""What an API server answers, and what goes wrong with a connection to it, in a few words."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from muster.engines.kubernetes.connection_errors import certificate_in_words, in_words
from muster.engines.kubernetes.excerpts import Excerpt
from muster.engines.kubernetes.proxies import place
from muster.engines.kubernetes.refusals import (
    LONGEST_TEXT,
    LONGEST_WAIT,
    PASSING,
    CannotCall,
    Operation,
    refusal,
)

if TYPE_CHECKING:
    import urllib3

#: What decoding raises; the second is for nesting without an end.
_UNREADABLE = msgspec.DecodeError, RecursionError
#: Bytes of an object that are read: API servers accept at most 3 MiB.
LONGEST_OBJECT = 1 << 24
#: Bytes of an answer with an error that are read.
_MOST_OF_ERROR = 1 << 20
#: Bytes that are read at once.
_PART = 1 << 18
#: Headers of each answer of an API server, also of one in plain text.
_OF_API_SERVER = "Audit-Id", "X-Kubernetes-PF-FlowSchema-UID"
#: How `http.client` says that a proxy makes no way.
_TUNNEL = re.compile(r"Tunnel connection failed: (.*)")
_NO_LOGIN = "Tunnel connection failed: 407"
#: OpenSSL: what the other side does not accept of a certificate. Whatever else goes wrong in a
#: handshake may be the end of a server that is restarted.
_CERTIFICATE = re.compile(r"CERTIFICATE|UNKNOWN[_ ]CA|ACCESS[_ ]DENIED", re.IGNORECASE)


@contextmanager
def explained(proxy: str | None = None, *, is_read: bool = False) -> Iterator[None]:
    """What goes wrong with a connection in the block is a CannotCall. proxy: its URL. is_read:
    whether an answer is read: whatever is wrong with it, another one may be right."""
    import urllib3

    try:
        yield
    except CannotCall:
        raise
    except urllib3.exceptions.LocationParseError as error:
        raise CannotCall(f"the cluster has no valid URL: {in_words(error)}", refused=True) from None
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if (why := _certificate_problem(error)) is not None:
            text = f"the connection to the cluster is not secure: {why}"
            raise CannotCall(text, refused=True) from None
        if proxy is not None and isinstance(error, urllib3.exceptions.ProxyError):
            raise _of_proxy(proxy, error) from None
        text = f"the cluster does not answer: {in_words(error)}"
        raise CannotCall(text, refused=False) from None
    except Exception as error:  # noqa: BLE001  its text may quote a header, which is a secret
        text = f"the cluster cannot be called: {type(error).__name__}"
        refused = isinstance(error, ValueError) and not is_read
        raise CannotCall(text, refused=refused) from None


def _of_proxy(proxy: str, error: urllib3.exceptions.ProxyError) -> CannotCall:
    """Why there is no way through a proxy."""
    why = str(error.original_error)
    if _NO_LOGIN in why:
        return no_login(proxy)
    if (found := _TUNNEL.search(why)) is not None:
        why = f"answers {found[1]}"
    else:
        why = f"does not answer: {in_words(error.original_error)}"
    return CannotCall(f"the proxy {place(proxy)} {why[:200]}", refused=False)


def no_login(proxy: str) -> CannotCall:
    """A proxy wants to know who calls (407). It is no answer of the API server."""
    text = f"the proxy {place(proxy)} does not accept the credentials (407)"
    return CannotCall(f"{text}: write http://NAME:PASSWORD@HOST:PORT", refused=True)


def content(answer: urllib3.BaseHTTPResponse, path: str, most: int = LONGEST_OBJECT) -> bytes:
    """What an answer has. path: what was requested. most: bytes that it may have. Raises
    CannotCall."""
    parts, size = list[bytes](), 0
    with explained(is_read=True):
        for part in answer.stream(_PART):
            parts.append(part)
            size += len(part)
            if size > most:
                answer.close()
                raise _too_large(path, most)
        answer.release_conn()
    return b"".join(parts)


def _too_large(path: str, most: int) -> CannotCall:
    text = (
        f"the cluster's answer cannot be read: that for {path} has more than {most >> 20} MiB: "
        "check whether it comes from the API server and, if so, make the objects or the log smaller"
    )
    return CannotCall(text, refused=False)


def discard(answer: urllib3.BaseHTTPResponse) -> None:
    """Read an answer that does not matter to its end, so that its connection is used again; close
    a long one."""
    with suppress(CannotCall):
        _beginning(answer)


def decoded(content: bytes | msgspec.Raw, form: Any = dict[str, Any]) -> Any:
    """What is in an answer. form: its type. Raises CannotCall, as for an answer that was cut
    off."""
    try:
        return msgspec.json.decode(content, type=form)
    except _UNREADABLE as error:
        text = f"the cluster's answer cannot be read: {error}"
        raise CannotCall(text, refused=False) from None


@contextmanager
def understood() -> Iterator[None]:
    """An answer of another shape in the block, as of something on the way, is a CannotCall."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        text = f"the cluster's answer cannot be read: {error!r:.200}"
        raise CannotCall(text, refused=False) from None


def excerpt(raw: msgspec.Raw) -> dict[str, Any]:
    """The fields of an object that are of interest; all, if some are not as they should be. What is
    no object is an empty one, as it must not hide the others. Raises CannotCall."""
    try:
        found: dict[str, Any] = msgspec.json.decode(raw, type=Excerpt)
    except _UNREADABLE:
        whole = decoded(raw, Any)
        return whole if isinstance(whole, dict) else {}
    return found


def check_object(found: Mapping[str, Any], kind: str) -> None:
    """Raises CannotCall if an answer with a success is no object of the cluster, but of something
    on the way. kind: what was requested, for people."""
    about = found.get("metadata")
    uid = about.get("uid") if isinstance(about, dict) else None
    if not uid or not isinstance(uid, str):
        raise CannotCall(f"the cluster's answer cannot be read: it is no {kind}", refused=False)


def listed(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a list. Raises CannotCall if it is none."""
    every = found.get("items") or []
    if not isinstance(every, list) or not all(isinstance(one, dict) for one in every):
        text = "the cluster's answer cannot be read: it is no list of objects"
        raise CannotCall(text, refused=False)
    return every


def refused(operation: Operation, answer: urllib3.BaseHTTPResponse) -> CannotCall:
    """What an answer with an error means. Raises CannotCall if it cannot be read."""
    found = refusal(operation, answer.status, error_body(_beginning(answer), answer.headers))
    after = answer.headers.get("Retry-After", "")
    if after.isascii() and after.isdigit():
        found.retry_after = min(float(after[:9]), LONGEST_WAIT)
    if answer.status in PASSING and found.retry_after is not None:
        found.refused = False
    return found


def _beginning(answer: urllib3.BaseHTTPResponse) -> bytes:
    """Of an answer with an error. Raises CannotCall."""
    with explained(is_read=True):
        text = answer.read(_MOST_OF_ERROR)
        is_whole = not answer.read(1)
    if is_whole:
        answer.release_conn()
    else:
        answer.close()
    return text


def error_body(content: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The Status of an answer with an error; without one, what its text says."""
    try:
        return dict(decoded(content))
    except CannotCall:  # of something on the way, plain text, or not whole
        found = {"message": content[:LONGEST_TEXT].decode(errors="replace")[:500]}
        if any(name in headers for name in _OF_API_SERVER):
            found["kind"] = "Status"
        return found


def _certificate_problem(error: BaseException) -> str | None:
    """What is wrong with a certificate; None if an error has another reason."""
    import urllib3.util.ssl_match_hostname as names

    # those of urllib3 have the error of `ssl` as an argument, those of a proxy as an attribute
    inner = [error, getattr(error, "original_error", None), *error.args]
    for one in [*inner, *getattr(inner[1], "args", ())]:
        is_of_tls = isinstance(one, ssl.SSLError) and _CERTIFICATE.search(one.reason or str(one))
        if is_of_tls or isinstance(one, names.CertificateError):
            return certificate_in_words(one)
    return None
